import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type LogBatch } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { Backoff, ignoreAbort, settledWithin, sleep } from '../system/timing.js';

type Line = LogBatch['lines'][number];

export interface LogShipperOptions {
  /** Folder for the sequence number of each stream. */
  dir: string;
  send(stream: string, batch: LogBatch, signal: AbortSignal): Promise<void>;
  log: AgentLog;
  /** Lines in one batch, default 200. */
  batchLines?: number;
  /** Shortest time between two batches of a stream, milliseconds, default 100; a line after a silence hardly waits. */
  batchMs?: number;
  /** Bytes that may wait for a control plane that is away; more is dropped and said so. Default 16 MiB. */
  holdBytes?: number;
}

/** Where lines of one stream go in. Several holders may share a stream (replicas of one app): one numbering. */
export interface LogWriter {
  line(text: string): void;
  /** More is waiting than ought to: pause the process that writes, if it can be paused. */
  readonly full: boolean;
  /** Settled when `full` is over. */
  drained(): Promise<void>;
  /** Settled when everything so far has been taken; `done` also closes the stream for good. */
  close(done: boolean): Promise<void>;
}

/** What a program says in one go comes in several reads: the first line waits for so long, milliseconds. */
const gatherMs = 10;
const fullBytes = 2 * 1024 * 1024;
const batchBytes = 512 * 1024;
/** Characters of a line that are kept, as the control plane does: a body of one endless line would be refused, and sent again. */
const longestLine = 200_000;

class Stream {
  readonly waiting: Line[] = [];
  bytes = 0;
  dropped = 0;
  next = 0;
  /** When the last batch left. */
  sentAt = -Infinity;
  /** The next number has been read from disk. */
  loaded: Promise<void> = Promise.resolve();
  done = false;
  holders = 0;
  sending: Promise<void> | null = null;
  readonly waiters = new Set<() => void>();
  wake: () => void = () => undefined;
}

/**
 * Sends log lines with rising numbers, in order, again and again until they are taken. The next number of each stream
 * is on disk before its lines leave, so that a new agent goes on behind the last one and nothing is taken for a double.
 */
export class LogShipper {
  private readonly streams = new Map<string, Stream>();
  private readonly stopping = new AbortController();
  private readonly batchLines: number;
  private readonly batchMs: number;
  private readonly holdBytes: number;

  constructor(private readonly options: LogShipperOptions) {
    this.batchLines = options.batchLines ?? 200;
    this.batchMs = options.batchMs ?? 100;
    this.holdBytes = options.holdBytes ?? 16 * 1024 * 1024;
  }

  async start(): Promise<void> {
    await mkdir(this.options.dir, { recursive: true });
    for (const name of await readdir(this.options.dir)) {
      const path = join(this.options.dir, name);
      const info = await stat(path).catch(() => null);
      if (info && Date.now() - info.mtimeMs > 30 * 86_400_000) await rm(path, { force: true });
    }
  }

  /** Opens a stream, or joins those who hold it. */
  async open(name: string): Promise<LogWriter> {
    let stream = this.streams.get(name);
    if (!stream) {
      stream = new Stream();
      this.streams.set(name, stream);
      const fresh = stream;
      stream.loaded = readFile(this.file(name), 'utf8').then(
        (text) => void (fresh.next = Number.parseInt(text, 10) || 0),
        () => undefined,
      );
    }
    stream.holders++;
    await stream.loaded;
    const held = stream;
    return {
      line: (text) => this.add(name, held, text),
      get full() {
        return held.bytes > fullBytes;
      },
      drained: () => this.until(held, () => held.bytes <= fullBytes / 2),
      close: (done) => this.close(name, held, done),
    };
  }

  /** Gives what waits one last chance, at most `graceMs`, then ends. */
  async stop(graceMs: number): Promise<void> {
    const all = Promise.all(
      [...this.streams.values()].map((stream) => this.until(stream, () => stream.waiting.length === 0)),
    );
    await settledWithin(all, graceMs);
    this.stopping.abort();
    for (const stream of this.streams.values()) for (const tell of stream.waiters) tell();
  }

  private file(name: string): string {
    return join(this.options.dir, createHash('sha256').update(name).digest('hex').slice(0, 32));
  }

  private add(name: string, stream: Stream, whole: string): void {
    if (stream.done) return;
    const text = whole.length > longestLine ? `${whole.slice(0, longestLine)}… (cut)` : whole;
    const bytes = Buffer.byteLength(text) + 48;
    if (stream.bytes + bytes > this.holdBytes) {
      stream.dropped++;
      return;
    }
    this.sayLost(stream);
    this.put(stream, text);
    this.kick(name, stream);
  }

  private sayLost(stream: Stream): void {
    if (stream.dropped === 0) return;
    const lost = stream.dropped;
    stream.dropped = 0;
    this.put(stream, `nebo: ${lost} log lines were lost here, more came than could be sent`);
  }

  private put(stream: Stream, text: string): void {
    stream.bytes += Buffer.byteLength(text) + 48;
    stream.waiting.push({ seq: stream.next++, at: new Date().toISOString(), line: text });
    if (stream.waiting.length >= this.batchLines) stream.wake();
  }

  private kick(name: string, stream: Stream): void {
    stream.sending ??= this.pump(name, stream).finally(() => {
      stream.sending = null;
      // A line may have come between the last look and this.
      if (stream.waiting.length > 0 && !this.stopping.signal.aborted) this.kick(name, stream);
    });
  }

  /** Sends until nothing waits. */
  private async pump(name: string, stream: Stream): Promise<void> {
    const signal = this.stopping.signal;
    const backoff = new Backoff(200, 5_000);
    while (stream.waiting.length > 0 && !signal.aborted) {
      if (stream.waiting.length < this.batchLines && !stream.done)
        await Promise.race([
          sleep(this.pause(stream), signal).catch(ignoreAbort),
          new Promise<void>((resolve) => (stream.wake = resolve)),
        ]);
      const lines = this.batch(stream);
      try {
        stream.sentAt = performance.now();
        await this.remember(name, lines[lines.length - 1]!.seq + 1);
        await this.options.send(name, { lines }, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.options.log.debug({ stream: name, error: String(error) }, 'log batch will be sent again');
        await sleep(backoff.next(), signal).catch(ignoreAbort);
        continue;
      }
      backoff.reset();
      stream.waiting.splice(0, lines.length);
      for (const line of lines) stream.bytes -= Buffer.byteLength(line.line) + 48;
      for (const tell of stream.waiters) tell();
    }
  }

  private pause({ sentAt }: Stream): number {
    return Math.max(Math.min(gatherMs, this.batchMs), sentAt + this.batchMs - performance.now());
  }

  /** The next lines: at most `batchLines`, and not more bytes than a request body may have. */
  private batch(stream: Stream): Line[] {
    let bytes = 0;
    const end = stream.waiting.findIndex((line, index) => {
      bytes += Buffer.byteLength(line.line) + 48;
      return index === this.batchLines || (index > 0 && bytes > batchBytes);
    });
    return end < 0 ? stream.waiting.slice() : stream.waiting.slice(0, end);
  }

  private async remember(name: string, next: number): Promise<void> {
    const path = this.file(name);
    await writeFile(`${path}.new`, String(next));
    await rename(`${path}.new`, path);
  }

  private until(stream: Stream, fine: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = () => {
        if (!fine() && !this.stopping.signal.aborted) return;
        stream.waiters.delete(look);
        resolve();
      };
      stream.waiters.add(look);
      look();
    });
  }

  private async close(name: string, stream: Stream, done: boolean): Promise<void> {
    if (stream.dropped > 0) {
      this.sayLost(stream);
      this.kick(name, stream);
    }
    if (done) {
      stream.done = true;
      stream.wake();
    }
    await this.until(stream, () => stream.waiting.length === 0);
    if (done) await this.sendDone(name);
    if (--stream.holders > 0) return;
    await stream.sending;
    if (this.streams.get(name) === stream && stream.holders === 0) this.streams.delete(name);
  }

  private async sendDone(name: string): Promise<void> {
    const signal = this.stopping.signal;
    const backoff = new Backoff(200, 5_000);
    while (!signal.aborted) {
      try {
        await this.options.send(name, { lines: [], done: true }, signal);
        return;
      } catch {
        await sleep(backoff.next(), signal).catch(ignoreAbort);
      }
    }
  }
}
