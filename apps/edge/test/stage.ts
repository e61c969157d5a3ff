import { createHash } from 'node:crypto';
import type http from 'node:http';
import { type RouteTarget } from '@nebo/contracts';
import { Registry } from 'prom-client';
import { type EdgeOptions } from '../src/index.js';
import { FakeDesk } from './desk.js';
import { backend, type Cleanup, serving } from './kit.js';

/** A route to an app that sleeps. */
export const sleepy = (id = 'r1'): RouteTarget => ({ kind: 'replicas', replicas: [], wake: { id } });

/** An edge with one sleeping app, whose process is a server of the test. */
export async function stage(
  cleanup: Cleanup,
  more: { tuning?: EdgeOptions['tuning']; listener?: http.RequestListener } = {},
) {
  const desk = new FakeDesk();
  const registry = new Registry();
  const app = await backend(
    cleanup,
    more.listener ??
      ((req, res) => {
        const hash = createHash('sha256');
        req.on('data', (chunk: Buffer) => hash.update(chunk));
        req.on('end', () => res.end(`${req.method} ${hash.digest('hex')}`));
      }),
  );
  desk.ports.set('r1', app.port);
  const run = await serving(cleanup, sleepy(), {
    wake: desk,
    registry,
    tuning: { wakePatienceMs: 400, wakeTimeoutMs: 20_000, ...more.tuning },
  });
  const figure = async (name: string) => {
    const line = (await registry.metrics()).split('\n').find((text) => text.startsWith(`${name} `));
    return Number(line?.split(' ')[1] ?? NaN);
  };
  const close = (): { open: () => void } => {
    let release!: () => void;
    desk.gate = new Promise((resolve) => (release = resolve));
    return { open: release };
  };
  return { ...run, desk, app, figure, close };
}
