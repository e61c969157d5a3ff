import { StringDecoder } from 'node:string_decoder';
import { EngineRefused } from './client.js';

/** What the engine tells while it builds or pulls. */
export interface Progress {
  /** Output of steps and the engine's own words, with line ends. */
  text(text: string): void;
  /** A step has left this image. */
  image(id: string): void;
  /** A step begins to run, by what is told. */
  step(): void;
  /** The build has failed, with the engine's reason. */
  error(message: string): void;
}

interface Message {
  stream?: unknown;
  status?: unknown;
  id?: unknown;
  progressDetail?: { current?: unknown };
  error?: unknown;
  errorDetail?: { message?: unknown };
  aux?: { ID?: unknown };
}

/** Longest message that is read; an engine sends output in pieces of some kilobytes. */
const maxMessage = 4 * 1024 * 1024;

/**
 * Reads the engine's messages: JSON objects, one in a line.
 * @throws EngineRefused when it is something else
 */
export class ProgressReader {
  private readonly decoder = new StringDecoder('utf8');
  private rest = '';
  private inFrom = false;

  constructor(private readonly told: Progress) {}

  push(chunk: Buffer): void {
    const parts = (this.rest + this.decoder.write(chunk)).split('\n');
    this.rest = parts.pop()!;
    if (this.rest.length > maxMessage) throw new EngineRefused(200, 'it tells more than can be read');
    for (const part of parts) this.message(part);
  }

  end(): void {
    this.message(this.rest + this.decoder.end());
    this.rest = '';
  }

  private message(line: string): void {
    if (line.trim() === '') return;
    const message = read(line);
    const { stream, status, id, error, errorDetail, aux } = message;
    if (typeof stream === 'string') this.stream(stream);
    if (typeof status === 'string' && message.progressDetail?.current === undefined)
      this.told.text(typeof id === 'string' && id !== '' ? `${id}: ${status}\n` : `${status}\n`);
    if (typeof aux?.ID === 'string') this.told.image(aux.ID.replace(/^sha256:/, ''));
    if (error !== undefined || errorDetail !== undefined)
      this.told.error(String(errorDetail?.message ?? error));
  }

  private stream(text: string): void {
    this.told.text(text);
    if (/^step \d+\/\d+ ?:/i.test(text)) this.inFrom = /^step \d+\/\d+ ?: *from\b/i.test(text);
    if (/^ ---> Running in |^step \d+\/\d+ ?: *run\b/im.test(text)) this.told.step();
    const [, made] = /^ ?--->? ([0-9a-f]{12,64})\s*$/m.exec(text) ?? [];
    // What stands behind FROM is somebody else's image.
    if (made && !this.inFrom) this.told.image(made);
  }
}

function read(line: string): Message {
  try {
    const message: unknown = JSON.parse(line);
    if (typeof message === 'object' && message !== null) return message;
  } catch {
    // Said below.
  }
  throw new EngineRefused(200, 'it tells what is no message of an engine');
}
