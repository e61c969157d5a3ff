import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Body, Controller, Get, HttpCode, Module, Post, Res } from '@nestjs/common';
import { RouteConfig } from '@nestjs/platform-fastify';
import { defineEvent, on, say } from '@nebo/bus';
import { identityHeader } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { activeTraceparent, createMetrics, startTelemetry, type Telemetry, withSpan } from '@nebo/telemetry';
import {
  type ExportedSpan,
  freshDatabase,
  type OtlpReceiver,
  sharedPostgres,
  startOtlpReceiver,
} from '@nebo/test-kit';
import Fastify, { type FastifyReply } from 'fastify';
import type { ServiceDefinition } from './boot.js';
import { Peers } from './peers.js';
import { countRequests } from './observe.js';
import type { ServiceName } from './runtime.js';
import { keyOf, startServices, type TestProcess } from './testing/index.js';

const ordered = defineEvent<{ name: string }>('nebo.dns.thing.ordered.v1');
const account = '00000000-0000-4000-8000-000000000001';

/** Answers a key by calling the other service. */
@Controller('v1')
class FrontController {
  constructor(private readonly peers: Peers) {}

  @Post('things')
  @HttpCode(201)
  @RouteConfig({ operation: 'create_thing' })
  create(@Body() body: { name: string }) {
    return this.peers.call('dns', '/internal/v1/order', { account, body });
  }

  @Get('things/:id')
  async read(@Res() reply: FastifyReply) {
    await reply.status(404).send({});
  }
}

/** Says an event in the transaction of its effect. */
@Controller('internal/v1')
class BackController {
  constructor(private readonly database: Database) {}

  @Post('order')
  async order(@Body() body: { name: string }) {
    await this.database.transaction((tx) => say(tx, ordered(body, { account })));
    return { name: body.name };
  }
}

const isOfEvent = ({ name }: ExportedSpan): boolean => name.startsWith('event ');

const heard: { name: string; trace: string | null; active: string | null }[] = [];

@Module({ controllers: [FrontController] })
class FrontModule {}

@Module({ controllers: [BackController] })
class BackModule {}

describe('what a process shows of itself', () => {
  const empty = mkdtempSync(join(tmpdir(), 'nebo-migrations-'));
  const migrations = pathToFileURL(`${empty}/`);
  const define = (
    name: ServiceName,
    module: ServiceDefinition['module'],
    hears: ServiceDefinition['hears'],
  ) => ({
    name,
    module,
    migrations,
    hears: hears ?? [],
  });
  const definitions = [
    define('networking', FrontModule, [
      on(ordered, 'networking-ordered', async (_tx, event) => {
        heard.push({ name: event.data.name, trace: event.trace, active: activeTraceparent() });
      }),
    ]),
    define('dns', BackModule, []),
  ];
  let receiver: OtlpReceiver;
  let telemetry: Telemetry;
  let nebo: TestProcess;

  beforeAll(async () => {
    receiver = await startOtlpReceiver();
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url };
    // The SDK reads this one from the process alone: spans are sent soon after their ends.
    process.env['OTEL_BSP_SCHEDULE_DELAY'] = '50';
    telemetry = await startTelemetry({ service: 'nebo', env });
    nebo = await startServices({ databaseUrl: await freshDatabase(), definitions, env });
  }, 60_000);
  afterAll(async () => {
    await nebo?.close();
    await telemetry?.shutdown();
    receiver?.stop();
    rmSync(empty, { recursive: true });
    await (await sharedPostgres()).stop();
  });

  it('one trace from the door over service, peer and event to the handler', async () => {
    const front = nebo.services.get('networking')!;
    const port = await front.listen(0);
    // As the gateway does: a span of its own, its `traceparent` on the forwarded request.
    const answer = await withSpan('door', {}, () =>
      fetch(`http://127.0.0.1:${port}/v1/things`, {
        method: 'POST',
        headers: {
          [identityHeader]: nebo.runtime.signer.sign(keyOf(account)),
          'content-type': 'application/json',
          traceparent: activeTraceparent()!,
        },
        body: JSON.stringify({ name: 'first' }),
      }),
    );
    expect([answer.status, await answer.json()]).toEqual([201, { name: 'first' }]);
    for (let waited = 0; heard.length === 0 && waited < 5_000; waited += 20)
      await new Promise((resolve) => setTimeout(resolve, 20));
    expect(heard).toHaveLength(1);
    // The span of an event ends when its transaction has, which is after its handler.
    for (let waited = 0; !receiver.spans.some(isOfEvent) && waited < 5_000; waited += 20)
      await new Promise((resolve) => setTimeout(resolve, 20));
    await telemetry.shutdown();

    const span = (name: string): ExportedSpan => {
      const found = receiver.spans.filter((candidate) => candidate.name === name);
      expect([name, found.length]).toEqual([name, 1]);
      return found[0]!;
    };
    const chain = [
      span('door'),
      span('POST /v1/things'),
      span('call dns'),
      span('POST /internal/v1/order'),
      span('event nebo.dns.thing.ordered.v1'),
    ];
    for (const [index, link] of chain.entries()) {
      expect([link.name, link.traceId]).toEqual([link.name, chain[0]!.traceId]);
      if (index > 0) expect([link.name, link.parentSpanId]).toEqual([link.name, chain[index - 1]!.spanId]);
    }
    expect(chain.map(({ kind }) => kind)).toEqual([1, 2, 3, 2, 5]);
    expect(heard[0]!.trace).toContain(chain[3]!.spanId);
    expect(heard[0]!.active).toContain(chain[4]!.spanId);
    // Not one span more: no probe, no SQL, nothing that was not asked for.
    expect(receiver.spans).toHaveLength(chain.length);
  }, 30_000);

  it('counts requests of all services by operation, and shows what waits in their outboxes', async () => {
    const as = keyOf(account);
    await nebo.request('networking', { path: '/v1/things/17', as });
    await nebo.request('networking', { path: '/v1/things/18', as });
    await nebo.request('networking', { path: '/v1/things/19', as: null });
    await nebo.request('networking', { path: '/healthz', as: null });
    await nebo.request('networking', { path: '/nowhere', as });
    const asked = await nebo.request('dns', { path: '/metrics', as: null });
    expect(asked).toMatchObject({
      status: 200,
      headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
    });
    const lines = asked.text.split('\n');
    const total = (service: string, method: string, operation: string, status: number) =>
      `nebo_http_requests_total{service="${service}",method="${method}",operation="${operation}",status="${status}"}`;
    expect(lines).toEqual(
      expect.arrayContaining([
        `${total('networking', 'POST', 'create_thing', 201)} 1`,
        `${total('networking', 'GET', '/v1/things/:id', 404)} 2`,
        `${total('networking', 'GET', '/v1/things/:id', 401)} 1`,
        `${total('dns', 'POST', '/internal/v1/order', 201)} 1`,
        'nebo_outbox_pending{service="dns"} 0',
        'nebo_outbox_pending{service="networking"} 0',
      ]),
    );
    expect(asked.text).not.toMatch(/healthz|nowhere/);
    expect(asked.text).toContain('process_resident_memory_bytes');
  });
});

describe('the counting hook', () => {
  it('costs less than 2 µs a request', async () => {
    const services = [Fastify(), Fastify()];
    countRequests(services[1]!, createMetrics('x'));
    for (const service of services) {
      service.get('/v1/things/:id', (_request, reply) => void reply.send('{}'));
      await service.ready();
    }
    // Small batches in turns, the fastest tenth of each: a neighbour on the machine slows some, not all of them.
    const times: number[][] = [[], []];
    for (let batch = 0; batch < 2_000; batch += 1) {
      for (const index of batch % 2 === 0 ? [0, 1] : [1, 0]) {
        await new Promise((resolve) => setImmediate(resolve));
        const before = process.hrtime.bigint();
        for (let n = 0; n < 10; n += 1) await services[index]!.inject({ url: '/v1/things/17' });
        if (batch >= 400) times[index]!.push(Number(process.hrtime.bigint() - before) / 10_000);
      }
    }
    const [plain, counted] = times.map((all) => all.sort((a, b) => a - b)[Math.floor(all.length / 10)]!);
    const micros = counted! - plain!;
    process.stderr.write(`counting hook: ${micros.toFixed(2)} µs over ${plain!.toFixed(1)} µs\n`);
    expect(micros).toBeLessThan(2);
    await Promise.all(services.map((service) => service.close()));
  }, 60_000);
});
