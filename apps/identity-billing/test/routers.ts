import { randomUUID } from 'node:crypto';
import type { Subscription } from '@nebo/bus';
import { type SliceInfo, sliceRecall, type SliceRecall, type SliceSettlement } from '@nebo/contracts';
import type { TestAnswer } from '@nebo/service-kit/testing';
import type { Billing } from './billing.js';

/** A settlement with everything that a router sends. */
export const settlementOf = (
  more: Pick<SliceSettlement, 'account_id' | 'key_id' | 'slice_id' | 'amount'> & Partial<SliceSettlement>,
): SliceSettlement => ({
  operation_id: randomUUID(),
  month: new Date().toISOString().slice(0, 7),
  description: 'glm-5.3',
  prices: [{ id: 'model.glm-5.3.input', version: 1 }],
  usage: {
    kind: 'inference',
    model: 'glm-5.3',
    input_tokens: 10,
    cached_tokens: 4,
    output_tokens: 5,
    reasoning_tokens: 1,
  },
  at: new Date().toISOString(),
  ...more,
});

/** What a router of inference does with slices of one account (and one key), in memory and without requests. */
export class TestRouter {
  epoch = 0;
  slice: SliceInfo | undefined;
  keySlice: SliceInfo | undefined;
  held = 0n;
  readonly recalls: SliceRecall[] = [];
  private subscription: Subscription | undefined;
  private turn: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly billing: Billing,
    readonly account: string,
    readonly key: string,
    /** The key has a monthly limit. */
    private readonly isLimited = false,
    readonly id: string = randomUUID(),
  ) {}

  call(name: string, body: object): Promise<TestAnswer> {
    return this.billing.internal('POST', `slices/${name}`, {
      router_id: this.id,
      epoch: this.epoch,
      ...body,
    });
  }

  async open(): Promise<this> {
    const { status, body, text } = await this.call('open', {});
    if (status !== 200) throw new Error(text);
    this.epoch = body.epoch;
    return this;
  }

  /** Hears recalls and returns what is idle, as a router that lives does. */
  async listen(): Promise<this> {
    this.subscription = await this.billing.nebo.runtime.bus.subscribeAll(sliceRecall.subject, ({ data }) => {
      const recall = data as SliceRecall;
      if (recall.account_id !== this.account) return;
      this.recalls.push(recall);
      if (recall.except_router_id !== this.id) void this.giveBack();
    });
    return this;
  }

  async take(need: bigint | string, want: bigint | string = need): Promise<TestAnswer> {
    const amounts = { need: need.toString(), want: want.toString() };
    return this.inTurn(async () => {
      const answer = await this.call('take', {
        account_id: this.account,
        ...amounts,
        ...(this.isLimited ? { key: { key_id: this.key, ...amounts } } : {}),
      });
      if (answer.status === 200) this.keep(answer.body.account, answer.body.key ?? undefined);
      return answer;
    });
  }

  get amount(): bigint {
    return BigInt(this.slice?.amount ?? 0);
  }

  /** What may still be held. */
  get idle(): bigint {
    const key = this.isLimited ? BigInt(this.keySlice?.amount ?? 0) : this.amount;
    return (key < this.amount ? key : this.amount) - this.held;
  }

  giveBack(): Promise<TestAnswer | undefined> {
    return this.inTurn(async () => {
      const slices = [this.slice, this.keySlice].flatMap((slice) => {
        const amount = slice ? BigInt(slice.amount) - this.held : 0n;
        if (!slice || amount <= 0n) return [];
        // From now on nothing more is held from it, whatever the answer says later.
        slice.amount = this.held.toString();
        return [{ id: slice.id, version: slice.version, amount: amount.toString() }];
      });
      if (slices.length === 0) return undefined;
      const answer = await this.call('return', { slices });
      for (const slice of (answer.body?.slices ?? []) as SliceInfo[])
        this.keep(slice.month ? undefined : slice, slice.month ? slice : undefined);
      return answer;
    });
  }

  renew(inUse: bigint = this.held): Promise<TestAnswer> {
    const in_use = inUse.toString();
    return this.call('renew', {
      slices: [this.slice, this.keySlice].flatMap((slice) => (slice ? [{ id: slice.id, in_use }] : [])),
    });
  }

  /** Holds and ends one request of an amount; false when the money is not to be had. */
  async request(amount: bigint, want = amount): Promise<boolean> {
    for (let tries = 0; this.idle < amount && tries < 3; tries += 1) {
      if ((await this.take(amount, want)).status !== 200) return false;
    }
    if (this.idle < amount) return false;
    this.held += amount;
    await new Promise((resolve) => setTimeout(resolve, 2));
    const { body } = await this.inTurn(() =>
      this.settle([this.ended(amount)]).then((answer) => {
        this.spent(amount);
        return answer;
      }),
    );
    if (body.settled.length !== 1) throw new Error(JSON.stringify(body));
    return true;
  }

  ended(amount: bigint | string, more: Partial<SliceSettlement> = {}): SliceSettlement {
    return settlementOf({
      account_id: this.account,
      key_id: this.key,
      slice_id: this.slice?.id ?? randomUUID(),
      ...(this.keySlice ? { key_slice_id: this.keySlice.id } : {}),
      amount: amount.toString(),
      ...more,
    });
  }

  settle(settlements: readonly unknown[]): Promise<TestAnswer> {
    return this.billing.internal('POST', 'slices/settle', { router_id: this.id, settlements });
  }

  close(): Promise<void> {
    return this.subscription?.close() ?? Promise.resolve();
  }

  private spent(amount: bigint): void {
    this.held -= amount;
    for (const slice of [this.slice, this.keySlice])
      if (slice) slice.amount = (BigInt(slice.amount) - amount).toString();
  }

  private keep(slice: SliceInfo | undefined, key: SliceInfo | undefined): void {
    if (slice) this.slice = slice;
    if (key) this.keySlice = key;
  }

  /** One call at a time, so that no answer overtakes another one. */
  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const run = this.turn.then(work);
    this.turn = run.catch(() => undefined);
    return run;
  }
}
