import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import type { Nano } from '@nebo/contracts';
import { ApiError, RUNTIME, type Runtime, unavailable } from '@nebo/service-kit';
import type { Counters, Finish } from '../dialects/dialect.js';
import { Settlements } from '../money/settlements.js';
import { RequestLog } from '../requests/request-log.js';
import type { Outcome } from '../requests/request-record.js';
import { Cancel } from './cancel.js';
import { UpstreamError } from '../upstreams/upstream-error.js';
import { Upstreams } from '../upstreams/upstreams.js';
import type { Admitted } from './admission.js';
import { AnswerReader } from './answer-reader.js';
import type { Piece } from './piece.js';
import { costOf } from './cost.js';
import { ReasoningMemory } from './reasoning-memory.js';
import { upstreamAnswer } from './upstream-answers.js';

/** Where the pieces of an answer go. */
export interface Sink {
  /** Takes pieces that came together. What it returns, if anything, resolves when more can be taken. */
  pieces(pieces: readonly Piece[]): void | Promise<void>;
}

/** An answer that is complete and settled; only its last bytes are still to be sent. */
export interface Completed {
  finish: Finish;
  /** Null: the upstream sent none, and the answer is free. */
  counters: Counters | null;
  cost: Nano;
}

/** Thrown where the client is gone, so that nobody is left to be told. */
export class ClientGone extends Error {}

/** Time that running answers have to finish when the service is stopped. Milliseconds. */
const stopGrace = 3_000;

/** State of one running answer that its end needs. */
interface Run {
  admitted: Admitted;
  /** Ends the upstream request. */
  upstream: Cancel;
  reader: AnswerReader | null;
  route: string | null;
  firstByteAt: Date | null;
  isDraining: boolean;
  /** Pieces that came: at least so many tokens of output. */
  pieces: number;
}

/** Carries out admitted orders: upstream, pieces, counters, settlement, log. The same for every format. */
@Injectable()
export class Completions implements OnModuleDestroy {
  private readonly running = new Map<Run, Promise<unknown>>();
  private stopping = false;

  constructor(
    private readonly upstreams: Upstreams,
    private readonly settlements: Settlements,
    private readonly log: RequestLog,
    private readonly memory: ReasoningMemory,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'log'>,
  ) {}

  /** Lets running answers finish for a moment, then cuts them off: free, like every cut on our side. */
  async onModuleDestroy(): Promise<void> {
    this.stopping = true;
    const all = Promise.allSettled(this.running.values());
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([all, new Promise((resolve) => (timer = setTimeout(resolve, stopGrace)))]);
    clearTimeout(timer);
    for (const run of this.running.keys()) run.upstream.cancel(unavailable('the service is being stopped'));
    await all;
  }

  /**
   * Runs an order to its end. When it returns, the settlement is durable and the format may send its last bytes.
   * @param gone cancelled when the client has left
   * @throws ApiError when there is no (complete) answer; nothing is charged then. ClientGone when nobody waits for one
   */
  run(admitted: Admitted, sink: Sink, gone: Cancel): Promise<Completed> {
    const run: Run = {
      admitted,
      upstream: new Cancel(),
      reader: null,
      route: null,
      firstByteAt: null,
      isDraining: false,
      pieces: 0,
    };
    const work = this.runToEnd(run, sink, gone).finally(() => this.running.delete(run));
    this.running.set(run, work);
    return work;
  }

  /** Gives back what an order still holds that was not run, or not to its end; one that has ended holds nothing. */
  drop({ reserved }: Admitted): void {
    this.settlements.giveBack(reserved);
  }

  private async runToEnd(run: Run, sink: Sink, gone: Cancel): Promise<Completed> {
    const off = gone.onCancel(() => void this.clientLeft(run));
    let completed: Completed;
    try {
      if (this.stopping) throw unavailable('the service is being stopped');
      const reader = await this.read(run, sink, gone);
      completed = await this.settle(run, reader);
      this.note(run, run.isDraining ? 'drained' : reader.counters ? 'complete' : 'uncounted', 200, completed);
      this.remember(run.admitted, reader);
    } catch (error) {
      throw await this.failed(run, error, gone.reason !== null);
    } finally {
      off();
    }
    if (run.isDraining) throw new ClientGone();
    return completed;
  }

  private async read(run: Run, sink: Sink, gone: Cancel): Promise<AnswerReader> {
    const { order } = run.admitted;
    let reader!: AnswerReader;
    await this.upstreams.answer(order, run.upstream, {
      began: (route) => {
        run.route = route.provider.name;
        run.firstByteAt = new Date();
        run.reader = reader = new AnswerReader(route, order.effort === 'none', order.messages);
      },
      events: (events) => {
        const pieces: Piece[] = [];
        for (const event of events) {
          const piece = reader.read(event);
          if (piece) pieces.push(piece);
        }
        run.pieces += pieces.length;
        return pieces.length > 0 && gone.reason === null ? sink.pieces(pieces) : undefined;
      },
    });
    run.upstream.throwIfCancelled();
    // An end without a finish reason is a cut that looks clean.
    if (!reader.finish) throw new UpstreamError('broken', 'the answer ended without a finish reason');
    return reader;
  }

  /** Counters become a charge; an answer without them is free (spec 8.5). */
  private async settle(run: Run, reader: Pick<AnswerReader, 'finish' | 'counters'>): Promise<Completed> {
    const { admitted } = run;
    const { order, operationId, reserved, tariff, held } = admitted;
    const { counters } = reader;
    const finish = reader.finish ?? 'stop';
    const exact = counters ? costOf(counters, order.ceiling, tariff) : 0n;
    if (counters && (counters.input > admitted.inputBound || counters.output > order.ceiling)) {
      this.runtime.log.error(
        {
          model: order.offer.model.id,
          upstream: run.route,
          counters,
          bound: admitted.inputBound,
          ceiling: order.ceiling,
          operation_id: operationId,
        },
        'an upstream counted more than was thought possible',
      );
    }
    const cost = exact > held ? held : exact;
    if (!counters || cost === 0n) {
      if (!counters)
        this.runtime.log.warn(
          { model: order.offer.model.id, upstream: run.route, operation_id: operationId },
          'an answer without counters is free',
        );
      this.settlements.giveBack(reserved);
      return { finish, counters, cost: 0n };
    }
    await this.settlements.capture(reserved, cost, {
      kind: 'inference',
      key_id: admitted.key,
      model: order.offer.model.id,
      price_version: tariff.version,
      input_tokens: counters.input,
      cached_tokens: counters.cached,
      output_tokens: counters.output,
      reasoning_tokens: counters.reasoning,
    });
    return { finish, counters, cost };
  }

  /**
   * The client hung up (inference-gateway.md, 4): the upstream request is cancelled at once, except for keys that do so
   * again and again before their counters; theirs is read to the end and billed by the counters.
   */
  private async clientLeft(run: Run): Promise<void> {
    const { key, account, operationId } = run.admitted;
    run.isDraining = await this.log.isInDrainMode(key, account, operationId).catch(() => false);
    if (!run.isDraining) run.upstream.cancel(new Error('the client left'));
  }

  /** Ends a run that has no complete answer; returns what is thrown. */
  private async failed(run: Run, error: unknown, isGone: boolean): Promise<Error> {
    run.upstream.cancel(error as Error);
    const counters = run.reader?.counters;
    if (isGone && !run.isDraining && counters) {
      // Counters that were reported before the client left are billed.
      const completed = await this.settle(run, { finish: null, counters }).catch(() => null);
      this.note(run, 'aborted', 499, completed);
      return new ClientGone();
    }
    this.settlements.giveBack(run.admitted.reserved);
    if (isGone) {
      this.note(run, run.isDraining ? 'broken' : 'aborted', 499, null);
      return new ClientGone();
    }
    const answer = error instanceof UpstreamError ? upstreamAnswer(error) : toApiError(error);
    this.note(
      run,
      this.stopping ? 'stopped' : run.firstByteAt && answer.status === 502 ? 'broken' : 'failed',
      answer.status,
      null,
    );
    return answer;
  }

  private note(run: Run, outcome: Outcome, status: number, completed: Completed | null): void {
    const { order, tariff, ...admitted } = run.admitted;
    this.log.write({
      operationId: admitted.operationId,
      requestId: admitted.requestId,
      account: admitted.account,
      key: admitted.key,
      format: order.format,
      model: order.offer.model.id,
      upstream: run.route,
      streamed: order.stream,
      status: outcome === 'drained' ? 499 : status,
      outcome,
      finish: run.reader?.finish ?? null,
      counters: completed?.counters ?? null,
      priceVersion: tariff.version,
      cost: completed?.cost ?? 0n,
      forgone: outcome === 'aborted' && !completed?.cost ? forgoneBy(run) : 0n,
      startedAt: admitted.startedAt,
      firstByteAt: run.firstByteAt,
      endedAt: new Date(),
    });
  }

  private remember({ account, order }: Admitted, reader: AnswerReader): void {
    if (reader.finish === 'tool_calls')
      this.memory.remember(account, order.messages, reader.toolCalls(), reader.reasoningText());
  }
}

/**
 * About what a client that left before the counters took for free: never billed, only weighed against what its key spends
 * (RequestLog.isInDrainMode). Nothing when the model had not begun to answer.
 */
function forgoneBy({ admitted, firstByteAt, pieces }: Run): Nano {
  if (!firstByteAt) return 0n;
  const counters = { input: admitted.inputBound, cached: 0, output: pieces, reasoning: 0 };
  return costOf(counters, admitted.order.ceiling, admitted.tariff);
}

const toApiError = (error: unknown): ApiError =>
  error instanceof ApiError
    ? error
    : new ApiError(500, 'internal_error', 'something failed on our side; nothing was charged', {
        cause: error,
      });
