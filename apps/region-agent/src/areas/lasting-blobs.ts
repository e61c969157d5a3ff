import { PassThrough, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type BlobRef } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { ControlPlaneError, type ServicePlane, Superseded } from '../control/control-plane.js';
import { type BlobAccess } from '../drivers/types.js';
import { Backoff, sleep } from '../system/timing.js';

export interface LastingOptions {
  log: Pick<AgentLog, 'warn'>;
  /** Milliseconds without a byte of progress after which it is given up. Default: two minutes, an update of the control plane. */
  patienceMs?: number;
  firstWaitMs?: number;
  /** Hears a sentence for the user whenever there is a wait, once until something moves again. */
  tell?: (sentence: string) => void;
}

/** Waits in which nothing has moved; over when they have lasted too long. */
class Standstill {
  private readonly waits: Backoff;
  private since: number | null = null;

  constructor(
    private readonly what: string,
    private readonly options: Required<LastingOptions>,
  ) {
    this.waits = new Backoff(options.firstWaitMs, 5_000);
  }

  moved(): void {
    this.since = null;
    this.waits.reset();
  }

  /** Waits before the next try. @throws the error, where another try would meet it again or it has lasted too long */
  async wait(error: unknown, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (isFinal(error)) throw error;
    const now = Date.now();
    if (this.since === null) {
      const seconds = Math.round(this.options.patienceMs / 1_000);
      this.options.tell(`the control plane does not answer; waiting for it, ${seconds} seconds at most`);
    }
    this.since ??= now;
    if (now - this.since >= this.options.patienceMs) throw error;
    this.options.log.warn({ error: String(error) }, `${this.what} broke off, it is tried again`);
    await sleep(this.waits.next(), signal);
  }
}

/** What a control plane has decided, or a file that cannot be opened here; broken connections and its own trouble are neither. */
const isFinal = (error: unknown): boolean =>
  error instanceof Superseded ||
  (error instanceof ControlPlaneError && error.status < 500 && ![408, 429].includes(error.status)) ||
  (error as NodeJS.ErrnoException).path !== undefined;

/**
 * Blobs of the control plane over connections that break: what is stored is sent again, what is read goes on where it stopped. A
 * blob is its hash, so both are the same bytes each time, and a build must not fail because a gateway is restarted.
 */
export function lastingBlobs(
  plane: Pick<ServicePlane, 'getBlob' | 'putBlob'>,
  { log, patienceMs = 120_000, firstWaitMs = 200, tell = () => undefined }: LastingOptions,
): BlobAccess {
  const options = { log, patienceMs, firstWaitMs, tell };
  return {
    get: (sha256, signal) => read(plane, sha256, signal, new Standstill(`reading ${sha256}`, options)),
    put: (blob, open, signal) =>
      write(plane, blob, open, signal, new Standstill(`storing ${blob.sha256}`, options)),
  };
}

async function write(
  plane: Pick<ServicePlane, 'putBlob'>,
  { sha256, bytes }: BlobRef,
  open: () => Readable,
  signal: AbortSignal,
  standstill: Standstill,
): Promise<void> {
  for (;;) {
    const source = open().on('error', () => undefined);
    try {
      return await plane.putBlob(sha256, bytes, source, signal);
    } catch (error) {
      await standstill.wait(error, signal);
    } finally {
      source.destroy();
    }
  }
}

/** The first answer is waited for: that there is no such blob is told at once. */
async function read(
  plane: Pick<ServicePlane, 'getBlob'>,
  sha256: string,
  signal: AbortSignal,
  standstill: Standstill,
): Promise<Readable> {
  // Whoever has read enough closes the stream, and with it what is being waited for.
  const closed = new AbortController();
  const either = AbortSignal.any([signal, closed.signal]);
  const begin = async (): Promise<Readable> => {
    for (;;) {
      try {
        return (await plane.getBlob(sha256, either)).on('error', () => undefined);
      } catch (error) {
        await standstill.wait(error, either);
      }
    }
  };
  const first = await begin();
  const parts = new PassThrough().once('close', () => {
    closed.abort();
    first.destroy();
  });
  // What fails is told by the stream.
  pipeline(goOn(first, begin, either, standstill), parts).catch(() => undefined);
  return parts;
}

async function* goOn(
  first: Readable,
  begin: () => Promise<Readable>,
  signal: AbortSignal,
  standstill: Standstill,
): AsyncGenerator<Buffer> {
  let at = 0;
  for (let source = first; ; source = await begin()) {
    let skip = at;
    try {
      for await (const chunk of source as AsyncIterable<Buffer>) {
        if (skip >= chunk.length) {
          skip -= chunk.length;
          continue;
        }
        const part = skip > 0 ? chunk.subarray(skip) : chunk;
        skip = 0;
        at += part.length;
        standstill.moved();
        yield part;
      }
      return;
    } catch (error) {
      await standstill.wait(error, signal);
    }
  }
}
