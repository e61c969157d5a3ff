import Fastify from 'fastify';
import { createMetrics } from '@nebo/telemetry';
import { countRequests } from '../../libs/service-kit/src/observe.js';
const make = async (counted: boolean) => {
  const fastify = Fastify();
  if (counted) countRequests(fastify, createMetrics('x'));
  fastify.addHook('onRequest', (_q, _p, done) => done());
  fastify.get('/v1/things/:id', (_request, reply) => {
    void reply.send('{}');
  });
  await fastify.ready();
  return fastify;
};
const [plain, counted] = [await make(false), await make(true)];
const round = async (fastify: any) => {
  const before = process.cpuUsage();
  for (let i = 0; i < 4_000; i++) await fastify.inject({ url: '/v1/things/17' });
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 4_000;
};
for (let i = 0; i < 3; i++) {
  await round(plain);
  await round(counted);
}
const a: number[] = [],
  b: number[] = [];
for (let n = 0; n < 120; n++) {
  if (n % 2) {
    a.push(await round(plain));
    b.push(await round(counted));
  } else {
    b.push(await round(counted));
    a.push(await round(plain));
  }
}
const med = (x: number[]) => [...x].sort((p, q) => p - q)[Math.floor(x.length / 2)]!;
const diffs = a.map((v, i) => b[i]! - v);
console.log(
  `plain min ${Math.min(...a).toFixed(2)} med ${med(a).toFixed(2)}; counted min ${Math.min(...b).toFixed(2)} med ${med(b).toFixed(2)}; median diff ${med(diffs).toFixed(2)} q10 ${[...diffs].sort((p,q)=>p-q)[12]!.toFixed(2)} µs CPU`,
);
