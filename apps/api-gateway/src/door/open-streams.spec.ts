import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { keyChanged, type KeyIdentity } from '@nebo/contracts';
import { FakeInstallation } from '../../test/fake-installation.js';

const account = randomUUID();
const app = randomUUID();

describe('an open event stream', () => {
  let nebo: FakeInstallation;
  beforeAll(async () => {
    nebo = await new FakeInstallation().start();
    nebo.owners.set(`app:${app}`, { account_id: account, project_id: randomUUID(), parents: [] });
  });
  afterAll(() => nebo.stop());

  const identity = (action: string): KeyIdentity => ({
    kind: 'key',
    account_id: account,
    key_id: randomUUID(),
    policy: [{ effect: 'allow', actions: [action], resources: ['*'] }],
    project_ids: null,
    role: 'owner',
  });

  /** A stream of a fresh key, of which something has come. */
  const open = async () => {
    const key = nebo.addKey(identity('app:read'));
    const request = get(`${nebo.api}/v1/apps/${app}/builds/${randomUUID()}/logs`, {
      headers: { authorization: `Bearer ${key}` },
      agent: false,
    });
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    expect(answer.statusCode).toBe(200);
    await once(answer, 'data');
    answer.on('error', () => undefined);
    const ended = new Promise((resolve) => answer.once('close', () => resolve('cut')));
    const after = (ms: number) =>
      Promise.race([ended, new Promise((resolve) => setTimeout(resolve, ms, 'open').unref())]);
    return { hash: nebo.hashOf(key), after, close: () => request.destroy() };
  };
  const say = (hash: string, state: 'active' | 'revoked') =>
    nebo.runtime.bus.publish([keyChanged({ key_id: randomUUID(), hash, state })]);

  it('ends at once when its key is revoked, that of another key goes on', async () => {
    const [mine, other] = [await open(), await open()];
    nebo.keys.delete(mine.hash);
    await say(mine.hash, 'revoked');
    expect(await mine.after(1_000)).toBe('cut');
    expect(await other.after(200)).toBe('open');
    other.close();
  });

  it('ends when its key loses the right to it, and goes on when the key keeps it', async () => {
    const stream = await open();
    nebo.keys.set(stream.hash, identity('app:*'));
    await say(stream.hash, 'active');
    expect(await stream.after(200)).toBe('open');
    nebo.keys.set(stream.hash, identity('vm:read'));
    await say(stream.hash, 'active');
    expect(await stream.after(1_000)).toBe('cut');
  });

  it('ends in seconds when the event was lost', async () => {
    const stream = await open();
    nebo.keys.delete(stream.hash);
    expect(await stream.after(12_000)).toBe('cut');
  });
});
