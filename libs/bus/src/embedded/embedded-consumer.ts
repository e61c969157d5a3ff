import { asError, backoffMs, type Backoff } from '../backoff.js';
import { type Envelope } from '../envelope.js';
import { type BusHandler, type ErrorHook, type Subscription } from '../event-bus.js';

/** An accepted event. */
export interface Item {
  id: string;
  type: string;
  /** The envelope as JSON: each delivery gets its own copy, as over a wire. */
  text: string;
  /** Milliseconds since the epoch. */
  at: number;
  /** Consumers that have not handled it yet. */
  waiting: number;
}

interface Entry {
  item: Item;
  attempt: number;
}

interface Member {
  handler: BusHandler;
  free: number;
  running: Set<Promise<void>>;
  stop: AbortController;
}

/** One durable consumer of the embedded bus: a queue that outlives its members, and the members that share it. */
export class EmbeddedConsumer {
  private queue: Entry[] = [];
  /** Taken entries at the front of `queue`; cutting them off one by one would cost the queue's length each time. */
  private head = 0;
  private readonly members: Member[] = [];
  private readonly timers = new Set<NodeJS.Timeout>();
  private turn = 0;

  constructor(
    readonly name: string,
    readonly pattern: string,
    private readonly redelivery: Backoff,
    private readonly onError: ErrorHook,
    private readonly onHandled: (item: Item) => void,
  ) {}

  push(item: Item): void {
    item.waiting += 1;
    this.enqueue({ item, attempt: 1 });
  }

  join(handler: BusHandler, concurrency: number): Subscription {
    const member: Member = { handler, free: concurrency, running: new Set(), stop: new AbortController() };
    this.members.push(member);
    this.pump();
    return { close: () => this.leave(member) };
  }

  async close(): Promise<void> {
    await Promise.all([...this.members].map((member) => this.leave(member)));
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
  }

  private async leave(member: Member): Promise<void> {
    const index = this.members.indexOf(member);
    if (index >= 0) this.members.splice(index, 1);
    member.stop.abort();
    await Promise.all(member.running);
  }

  private enqueue(entry: Entry): void {
    this.queue.push(entry);
    this.pump();
  }

  private pump(): void {
    while (this.head < this.queue.length) {
      const member = this.nextFree();
      if (member === undefined) return;
      const entry = this.queue[this.head]!;
      this.head += 1;
      if (this.head > 1_000 && this.head * 2 > this.queue.length) {
        this.queue = this.queue.slice(this.head);
        this.head = 0;
      }
      member.free -= 1;
      const run = this.deliver(member, entry).finally(() => {
        member.running.delete(run);
        member.free += 1;
        this.pump();
      });
      member.running.add(run);
    }
  }

  private nextFree(): Member | undefined {
    for (let tried = 0; tried < this.members.length; tried += 1) {
      this.turn = (this.turn + 1) % this.members.length;
      const member = this.members[this.turn]!;
      if (member.free > 0) return member;
    }
    return undefined;
  }

  private async deliver(member: Member, entry: Entry): Promise<void> {
    // A turn of the event loop between publisher and handler: a handler must never run inside a publisher's call.
    await new Promise((resolve) => setImmediate(resolve));
    if (member.stop.signal.aborted) {
      this.enqueue(entry);
      return;
    }
    const { item, attempt } = entry;
    try {
      await member.handler(JSON.parse(item.text) as Envelope, { attempt, signal: member.stop.signal });
    } catch (error) {
      this.onError(asError(error), `${this.name} ${item.type} ${item.id}`);
      const timer = setTimeout(
        () => {
          this.timers.delete(timer);
          this.enqueue({ item, attempt: attempt + 1 });
        },
        backoffMs(attempt, this.redelivery),
      );
      this.timers.add(timer);
      return;
    }
    item.waiting -= 1;
    if (item.waiting === 0) this.onHandled(item);
  }
}
