import { Readable } from 'node:stream';
import type { ServiceTarget, TargetAnswer, TargetCall } from '@nebo/service-kit';

/** A service that is not under test: answers what it is told, and remembers what it was asked. */
export class StubTarget implements ServiceTarget {
  readonly calls: { path: string; body: unknown }[] = [];

  constructor(
    private readonly answer: (path: string, body: never) => { status: number; body: unknown } | undefined,
  ) {}

  forward(): void {
    throw new Error('nothing is forwarded to a stub');
  }

  async call({ path, body }: TargetCall): Promise<TargetAnswer> {
    const parsed: unknown = typeof body === 'string' ? JSON.parse(body) : undefined;
    this.calls.push({ path, body: parsed });
    const { status, body: answered } = this.answer(path, parsed as never) ?? {
      status: 404,
      body: { error: { code: 'not_found', message: 'no' } },
    };
    return { status, headers: {}, body: Readable.from([Buffer.from(JSON.stringify(answered))]) };
  }

  async close(): Promise<void> {}
}
