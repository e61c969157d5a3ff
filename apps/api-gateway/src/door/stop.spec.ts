import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import { FakeInstallation } from '../../test/fake-installation.js';

const stepMs = 150;

describe('a gateway that stops', () => {
  it('cuts off nobody who asks one thing after the other on a kept connection', async () => {
    const nebo = await new FakeInstallation().start();
    const forward = nebo.runtime.targets.get('inference-router');
    // As a model that takes a moment.
    nebo.runtime.targets.set('inference-router', {
      forward: (_request, response) =>
        void setTimeout(
          () => response.writeHead(200, { 'content-type': 'application/json' }).end('{}'),
          stepMs,
        ),
      call: (call) => forward.call(call),
      close: () => forward.close(),
    });
    const agent = new Agent({ keepAlive: true });
    const answers: unknown[] = [];
    const refused: unknown[] = [];
    const client = async () => {
      while (refused.length === 0) {
        try {
          const request = get(`${nebo.ai}/v1/models`, { agent });
          const [answer] = (await once(request, 'response')) as [IncomingMessage];
          answer.resume();
          await once(answer, 'end');
          answers.push(answer.statusCode);
        } catch (error) {
          refused.push((error as NodeJS.ErrnoException).code);
        }
      }
    };
    const clients = [client(), client()];
    await new Promise((resolve) => setTimeout(resolve, 2 * stepMs));
    const begun = performance.now();
    await nebo.gateway.stop();
    expect(performance.now() - begun).toBeLessThan(1_900);
    await Promise.all(clients);
    agent.destroy();
    expect(new Set(answers)).toEqual(new Set([200]));
    expect(new Set(refused)).toEqual(new Set(['ECONNREFUSED']));
    await nebo.stop();
  });
});
