import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { Agent, get, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Controller, Get, Module } from '@nestjs/common';
import {
  checkPolicy,
  identityHeader,
  type KeyIdentity,
  policyLimits,
  type PolicyStatement,
} from '@nebo/contracts';
import { freshDatabase, sharedPostgres } from '@nebo/test-kit';
import { Caller } from './request.js';
import { keyOf, startServices, type TestProcess } from './testing/index.js';

const account = '00000000-0000-4000-8000-000000000001';
const idOf = (index: number) => `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`;

@Controller('v1')
class SlowController {
  @Get('who')
  who(@Caller() caller: KeyIdentity) {
    return { statements: caller.policy.length, projects: caller.project_ids?.length };
  }

  @Get('slow')
  async slow() {
    await new Promise((resolve) => setTimeout(resolve, 300));
    return { done: true };
  }
}

@Module({ controllers: [SlowController] })
class SlowModule {}

describe('a service behind a port of its own', () => {
  const empty = mkdtempSync(join(tmpdir(), 'nebo-migrations-'));
  const definition = {
    name: 'networking',
    module: SlowModule,
    migrations: pathToFileURL(`${empty}/`),
  };
  let nebo: TestProcess;

  beforeEach(async () => {
    nebo = await startServices({ databaseUrl: await freshDatabase(), definitions: [definition] });
  }, 60_000);
  afterEach(() => nebo?.close());
  afterAll(async () => {
    rmSync(empty, { recursive: true });
    await (await sharedPostgres()).stop();
  });

  const ask = async (port: number, path: string, agent: Agent, identity = keyOf(account)) => {
    const headers = { [identityHeader]: nebo.runtime.signer.sign(identity) };
    const request = get({ host: '127.0.0.1', port, path, agent, headers });
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    const pieces: Buffer[] = [];
    for await (const piece of answer as AsyncIterable<Buffer>) pieces.push(piece);
    return { status: answer.statusCode, body: Buffer.concat(pieces).toString() };
  };

  it('takes the largest policy and allow-list that a key may have, beside what the client sends', async () => {
    const policy: PolicyStatement[] = [];
    const size = () => Buffer.byteLength(JSON.stringify(policy));
    for (let index = 0; policy.length < policyLimits.statements; index += 1)
      policy.push({ effect: 'allow', actions: ['vm:read'], resources: [`vm:${idOf(index)}`] });
    while (size() < policyLimits.bytes - 50) policy[0]!.resources.push(`vm:${idOf(size())}`);
    checkPolicy(policy);
    const projects = Array.from({ length: 200 }, (_, index) => idOf(index));
    const port = await nebo.services.get('networking')!.listen(0);
    const agent = new Agent();
    const key = keyOf(account, { policy, project_ids: projects });
    const answer = await ask(port, `/v1/who?padding=${'x'.repeat(12_000)}`, agent, key);
    expect([answer.status, JSON.parse(answer.body)]).toEqual([
      200,
      { statements: policy.length, projects: 200 },
    ]);
  });

  it('answers all that is under way when it is stopped, and what comes on a kept connection meanwhile', async () => {
    const service = nebo.services.get('networking')!;
    const port = await service.listen(0);
    const agent = new Agent({ keepAlive: true });
    const answers: unknown[] = [];
    const refused: string[] = [];
    const client = async () => {
      while (refused.length === 0) {
        try {
          answers.push((await ask(port, '/v1/slow', agent)).status);
        } catch (error) {
          refused.push((error as NodeJS.ErrnoException).code!);
        }
      }
    };
    const clients = [client(), client(), client()];
    await new Promise((resolve) => setTimeout(resolve, 400));
    const begun = performance.now();
    await service.close();
    expect(performance.now() - begun).toBeLessThan(1_900);
    await Promise.all(clients);
    agent.destroy();
    expect(new Set(answers)).toEqual(new Set([200]));
    expect(new Set(refused)).toEqual(new Set(['ECONNREFUSED']));
  });
});
