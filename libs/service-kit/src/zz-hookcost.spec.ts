import Fastify from 'fastify';
import { createMetrics } from '@nebo/telemetry';
import { countRequests } from './observe.js';

it('hook cost', async () => {
  const make = async (counted: boolean) => {
    const fastify = Fastify();
    if (counted) countRequests(fastify, createMetrics('x'));
    fastify.addHook('onRequest', (_q, _p, done) => done());
    fastify.get('/v1/things/:id', (_request, reply) => { void reply.send('{}'); });
    await fastify.ready();
    return fastify;
  };
  const [plain, counted] = [await make(false), await make(true)];
  const round = async (fastify: Awaited<ReturnType<typeof make>>) => {
    const before = process.cpuUsage();
    const t = process.hrtime.bigint();
    for (let i = 0; i < 5_000; i++) await fastify.inject({ url: '/v1/things/17' });
    const { user, system } = process.cpuUsage(before);
    void user; void system;
    return Number(process.hrtime.bigint() - t) / 5_000 / 1000;
  };
  await round(plain); await round(counted);
  const a: number[] = [], b: number[] = [];
  for (let n = 0; n < 25; n++) { a.push(await round(plain)); b.push(await round(counted)); }
  const med = (x: number[]) => [...x].sort((p, q) => p - q)[Math.floor(x.length / 2)]!;
  const diffs = a.map((v, i) => b[i]! - v);
  process.stderr.write(`plain min ${Math.min(...a).toFixed(2)} med ${med(a).toFixed(2)}; counted min ${Math.min(...b).toFixed(2)} med ${med(b).toFixed(2)}; median diff ${med(diffs).toFixed(2)} µs\n`);
}, 200_000);
