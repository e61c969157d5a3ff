import { createHash } from 'node:crypto';
import { type Readable } from 'node:stream';
import { type ImageReference } from '@nebo/contracts';
import {
  type AllowList,
  type SafeClient,
  SafeNetFailed,
  SafeNetRefused,
  type SafeResponse,
} from '@nebo/safe-net';
import { Backoff, sleep } from '../system/timing.js';
import { ImageFailure, told } from './image-failure.js';
import { type Descriptor, manifestTypes, maxDocumentBytes } from './manifest.js';
import {
  collect,
  documentMs,
  header,
  maxRefusal,
  Passing,
  RegistryAccess,
  retryAfter,
} from './registry-access.js';
import { type Login } from './registry-login.js';

/** Where the default registry is asked, whose name is another host's. */
const hosts: Readonly<Record<string, string>> = { 'docker.io': 'registry-1.docker.io' };
/** Ports of registries that are public; any other has to be allowed by the operator. */
export const registryPorts: readonly number[] = [443, 5000, 5050, 8443];

const tries = 4;
const longestPauseMs = 60_000;
const blobMs = 20 * 60_000;
/** So long nothing of a blob may come, milliseconds. */
const idleMs = 60_000;

export interface RegistryParts {
  /** Guarded: no private address unless the operator names it. */
  client: SafeClient;
  /** Hosts of the operator, which may be asked without TLS. */
  allow: AllowList;
  signal: AbortSignal;
  /** Who asks; null: anybody. */
  login: Login | null;
  /** First pause between two tries, milliseconds; default 500. */
  pauseMs?: number;
}

type Answer = SafeResponse<Readable>;

/** The repository of one image at its registry, read by the distribution protocol (version 2). */
export class Registry {
  private readonly host: string;
  private scheme: 'https' | 'http' = 'https';
  private readonly access: RegistryAccess;

  constructor(
    private readonly reference: ImageReference,
    private readonly parts: RegistryParts,
  ) {
    this.host = hosts[reference.registry] ?? reference.registry;
    this.access = new RegistryAccess(this.host, reference.repository, parts);
  }

  /**
   * A manifest's bytes, by tag or digest.
   * @throws ImageFailure with the registry's reason
   */
  async manifest(name: string): Promise<{ bytes: Buffer; digest: string }> {
    const what = name.startsWith('sha256:') ? `${this.shown}@${name}` : `${this.shown}:${name}`;
    const bytes = await this.retried(what, async () => {
      const answer = await this.get(`manifests/${name}`, what, {
        headers: { accept: manifestTypes },
        maxBytes: maxDocumentBytes,
        timeoutMs: documentMs,
      });
      return collect(answer.body);
    });
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    if (name.startsWith('sha256:') && digest !== name)
      throw new ImageFailure(`The registry ${this.host} gave other bytes for ${what} than its digest says.`);
    return { bytes, digest };
  }

  /** A small blob's bytes, e.g. an image's settings. @throws ImageFailure */
  async document(descriptor: Descriptor): Promise<Buffer> {
    if (descriptor.size > maxDocumentBytes)
      throw new ImageFailure(`The settings of the image are larger than ${maxDocumentBytes} bytes.`);
    const parts: Buffer[] = [];
    await this.blob(descriptor, {
      begin: () => Promise.resolve(void parts.splice(0)),
      write: (chunk) => Promise.resolve(void parts.push(chunk)),
    });
    return Buffer.concat(parts);
  }

  /**
   * Gives a blob's bytes to `into`, from the beginning again when the connection breaks. Nothing of it may be used before
   * this is settled: only then is the digest known to be right.
   * @throws ImageFailure
   */
  async blob(
    { digest, size }: Descriptor,
    into: { begin(): Promise<void>; write(chunk: Buffer): Promise<void> },
  ): Promise<void> {
    const what = `${this.shown}, blob ${digest.slice(0, 19)}`;
    await this.retried(what, async () => {
      const idle = new AbortController();
      let timer = setTimeout(() => idle.abort(), idleMs);
      try {
        await into.begin();
        const answer = await this.get(`blobs/${digest}`, what, {
          maxBytes: size,
          timeoutMs: blobMs,
          signal: idle.signal,
        });
        const hash = createHash('sha256');
        let seen = 0;
        for await (const chunk of answer.body as AsyncIterable<Buffer>) {
          clearTimeout(timer);
          timer = setTimeout(() => idle.abort(), idleMs);
          seen += chunk.length;
          hash.update(chunk);
          await into.write(chunk);
        }
        // A connection that ends early looks like an end where the registry names no length.
        if (seen < size) throw new SafeNetFailed('protocol', `only ${seen} of ${size} bytes came`);
        if (`sha256:${hash.digest('hex')}` !== digest)
          throw new ImageFailure(
            `The registry ${this.host} gave other bytes for ${what} than its digest says.`,
          );
      } catch (error) {
        if (error instanceof SafeNetFailed && error.kind === 'too_large')
          throw new ImageFailure(
            `The registry ${this.host} gave more bytes for ${what} than its manifest says.`,
          );
        if (idle.signal.aborted)
          throw new SafeNetFailed('timeout', `nothing came for ${idleMs / 1000} s`, error);
        throw error;
      } finally {
        clearTimeout(timer);
      }
    });
  }

  private get shown(): string {
    return `${this.reference.registry}/${this.reference.repository}`;
  }

  /** Tries again what may pass: broken connections, 429 and 5xx. */
  private async retried<T>(what: string, work: () => Promise<T>): Promise<T> {
    const { signal, pauseMs = 500 } = this.parts;
    const backoff = new Backoff(pauseMs, 8_000);
    for (let tried = 1; ; tried += 1) {
      try {
        return await work();
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof SafeNetRefused)
          throw new ImageFailure(`The registry of ${what} cannot be asked: ${error.message}.`);
        const passing = error instanceof Passing || error instanceof SafeNetFailed;
        if (!passing) throw error;
        if (tried === tries || (error instanceof SafeNetFailed && error.kind === 'too_large'))
          throw new ImageFailure(
            error instanceof Passing
              ? error.message
              : `The registry ${this.host} could not give ${what}: ${error.message}.`,
          );
        const asked = error instanceof Passing ? error.afterMs : null;
        await sleep(Math.min(asked ?? backoff.next(), longestPauseMs), signal);
      }
    }
  }

  /** One request, with a token when the registry asks for one. */
  private async get(path: string, what: string, how: How): Promise<Answer> {
    const answer = await this.send(path, how);
    if (answer.status !== 401) return this.judged(answer, what);
    answer.body.on('error', () => undefined).destroy();
    await this.access.meet(header(answer, 'www-authenticate'), what);
    return this.judged(await this.send(path, how), what);
  }

  private async send(path: string, { headers, signal, ...how }: How): Promise<Answer> {
    const request = {
      ...how,
      signal: signal ? AbortSignal.any([signal, this.parts.signal]) : this.parts.signal,
      headers: { ...headers, ...this.access.headers },
    };
    const url = () => `${this.scheme}://${this.host}/v2/${this.reference.repository}/${path}`;
    try {
      return await this.parts.client.stream(url(), request);
    } catch (error) {
      const noTls = error instanceof SafeNetFailed && (error.kind === 'connect' || error.kind === 'protocol');
      if (!noTls || this.scheme === 'http' || !this.mayBePlain()) throw error;
      this.scheme = 'http';
      try {
        return await this.parts.client.stream(url(), request);
      } catch (second) {
        this.scheme = 'https';
        throw second;
      }
    }
  }

  /** A registry of the operator's own may have no TLS. */
  private mayBePlain(): boolean {
    const { hostname, port } = new URL(`http://${this.host}`);
    return this.parts.allow.has(hostname, Number(port || 80));
  }

  /** @throws ImageFailure, Passing */
  private async judged(answer: Answer, what: string): Promise<Answer> {
    const { status } = answer;
    if (status === 200) return answer;
    const reason = told(this.access.redact(await reasonOf(answer)));
    const says = reason === '' ? `answers ${status}` : `says "${reason}" (${status})`;
    if (status === 429)
      throw new Passing(
        `The registry ${this.host} allows no more requests for now: it ${says}. Deploy again later.`,
        retryAfter(answer),
      );
    if (status >= 500)
      throw new Passing(
        `The registry ${this.host} is in trouble: it ${says}. Deploy again later.`,
        retryAfter(answer),
      );
    if (status === 404) throw new ImageFailure(`There is no ${what}: the registry ${says}.`);
    if (status === 401 || status === 403)
      throw new ImageFailure(`The registry does not give ${what}: it ${says}. ${this.access.advice}`);
    throw new ImageFailure(`The registry ${this.host} gives no ${what}: it ${says}.`);
  }
}

interface How {
  headers?: Record<string, string>;
  maxBytes: number;
  timeoutMs: number;
  signal?: AbortSignal;
}

/** What a registry says of a refusal, word by word: `{"errors": [{"code", "message"}]}`; empty when nothing of it can be read. */
async function reasonOf({ body }: Answer): Promise<string> {
  let size = 0;
  const parts: Buffer[] = [];
  try {
    for await (const part of body as AsyncIterable<Buffer>) {
      size += part.length;
      if (size > maxRefusal) return '';
      parts.push(part);
    }
    const { errors } = JSON.parse(Buffer.concat(parts).toString('utf8')) as { errors?: unknown };
    const [first] = Array.isArray(errors) ? (errors as unknown[]) : [];
    const { message, code } = (first ?? {}) as { message?: unknown; code?: unknown };
    return typeof message === 'string' && message !== '' ? message : typeof code === 'string' ? code : '';
  } catch {
    return '';
  }
}
