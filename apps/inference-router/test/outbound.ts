import { Config, HealthRegistry } from '@nebo/service-kit';
import { createMetrics, Figures } from '@nebo/telemetry';
import { type Logger, pino } from 'pino';
import type { Catalogue } from '../src/catalogue/catalogue.js';
import { readCatalogue } from '../src/catalogue/config-file.js';
import { Cancel } from '../src/completions/cancel.js';
import { AnswerReader } from '../src/completions/answer-reader.js';
import type { Piece } from '../src/completions/piece.js';
import type { Order } from '../src/completions/order.js';
import type { Counters, Finish } from '../src/dialects/dialect.js';
import { Images } from '../src/images/images.js';
import { SimulatorUpstream } from '../src/simulator/simulator.js';
import { Breakers } from '../src/upstreams/breakers.js';
import { Deadlines } from '../src/upstreams/deadlines.js';
import { HttpUpstream } from '../src/upstreams/http-upstream.js';
import { Upstreams } from '../src/upstreams/upstreams.js';

/** An answer as it was read, all pieces put together. */
export interface ReadAnswer {
  /** The provider that gave it. */
  upstream: string;
  pieces: Piece[];
  content: string;
  reasoning: string;
  /** Per call of the answer: id, name and arguments. */
  calls: { id: string; name: string; arguments: string }[];
  finish: Finish | null;
  counters: Counters | null;
}

/** The outbound half of the router alone: from an order to the pieces of its answer, without money and formats. */
export interface Outbound {
  catalogue: Catalogue;
  upstreams: Upstreams;
  health: HealthRegistry;
  figures: Figures;
  /** What was logged, one object a line. */
  log: Record<string, unknown>[];
  order(model: string, more?: Partial<Order>): Order;
  /** Opens and reads an answer to its end. */
  ask(order: Order, cancel?: Cancel): Promise<ReadAnswer>;
  stop(): Promise<void>;
}

/** @param config text of the operator's file */
export function startOutbound(config: string, env: Record<string, string> = {}): Outbound {
  const log: Record<string, unknown>[] = [];
  const logger: Logger = pino(
    { level: 'info' },
    { write: (line: string) => void log.push(JSON.parse(line) as Record<string, unknown>) },
  );
  const runtime = { config: new Config(env), log: logger };
  const catalogue = readCatalogue('inference.yaml', config, runtime.config);
  const figures = new Figures();
  const health = new HealthRegistry();
  const deadlines = new Deadlines();
  const http = new HttpUpstream(deadlines, runtime);
  const breakers = new Breakers(runtime, createMetrics('inference-router', figures), health, catalogue);
  const upstreams = new Upstreams(
    http,
    new SimulatorUpstream(runtime),
    breakers,
    new Images(runtime),
    deadlines,
    runtime,
  );
  const outbound: Outbound = {
    catalogue,
    upstreams,
    health,
    figures,
    log,
    order: (model, more = {}) => ({
      format: 'chat',
      offer: catalogue.get(model)!,
      messages: [{ role: 'user', content: 'hi' }],
      tools: [],
      toolChoice: undefined,
      settings: {},
      effort: undefined,
      ceiling: 4_096,
      stream: true,
      ...more,
    }),
    ask: (order, cancel = new Cancel()) => ask(upstreams, order, cancel),
    stop: async () => {
      deadlines.onModuleDestroy();
      await http.onApplicationShutdown();
    },
  };
  return outbound;
}

async function ask(upstreams: Upstreams, order: Order, cancel: Cancel): Promise<ReadAnswer> {
  const pieces: Piece[] = [];
  let upstream = '';
  let reader!: AnswerReader;
  await upstreams.answer(order, cancel, {
    began: (route) => {
      upstream = route.provider.name;
      reader = new AnswerReader(route, order.effort === 'none');
    },
    events: (events) => {
      for (const event of events) pieces.push(...[reader.read(event) ?? []].flat());
    },
  });
  return { upstream, ...together(pieces, reader) };
}

/** Puts pieces together as a client would. */
export function together(
  pieces: Piece[],
  { finish, counters }: Pick<AnswerReader, 'finish' | 'counters'>,
): Omit<ReadAnswer, 'upstream'> {
  const calls: ReadAnswer['calls'] = [];
  for (const { index, id, function: told } of pieces.flatMap((piece) => piece.toolCalls ?? [])) {
    const call = (calls[index] ??= { id: '', name: '', arguments: '' });
    call.id ||= id ?? '';
    call.name ||= told.name ?? '';
    call.arguments += told.arguments ?? '';
  }
  return {
    pieces,
    content: pieces.map((piece) => piece.content ?? '').join(''),
    reasoning: pieces.map((piece) => piece.reasoning ?? '').join(''),
    calls,
    finish,
    counters,
  };
}
