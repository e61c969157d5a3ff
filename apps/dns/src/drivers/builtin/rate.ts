/** What a client's packet gets. */
export type Verdict = 'answer' | 'cut' | 'drop';

const slots = 65_536;

/**
 * Answers to one network (/24, /56) are limited, since the sender of a UDP packet may be a lie and the answer a weapon. Above
 * the rate every second packet gets "ask over TCP", which an honest client does, and the others nothing. The loopback
 * cannot be lied about from outside and is not limited. Networks share 65,536 counters; a collision halves a rate, no more.
 */
export class AnswerRate {
  private readonly counts = new Uint32Array(slots);
  private second = 0;
  private turn = false;

  /** @param perSecond answers to one network; 0: no limit */
  constructor(
    private readonly perSecond: number,
    private readonly now: () => number = Date.now,
  ) {}

  verdict(sender: string): Verdict {
    // A socket for both families shows IPv4 senders so; all of them together are no network.
    const address = sender.startsWith('::ffff:') && sender.includes('.') ? sender.slice(7) : sender;
    if (this.perSecond === 0 || address.startsWith('127.') || address === '::1') return 'answer';
    const second = Math.floor(this.now() / 1000);
    if (second !== this.second) {
      this.second = second;
      this.counts.fill(0);
    }
    const slot = slotOf(networkOf(address));
    const count = this.counts[slot]! + 1;
    this.counts[slot] = count;
    if (count <= this.perSecond) return 'answer';
    this.turn = !this.turn;
    return this.turn ? 'cut' : 'drop';
  }
}

function networkOf(address: string): string {
  if (!address.includes(':')) return address.slice(0, address.lastIndexOf('.'));
  const [head = '', tail] = address.split('::');
  const groups = head.split(':');
  // What `::` stands for is zeros; of the groups behind it at most the last ones of the network count.
  if (tail !== undefined) groups.push(...Array<string>(8).fill('0'));
  const [a, b, c, d = '0'] = groups;
  return `${a}:${b}:${c}:${Number.parseInt(d, 16) >> 8}`;
}

/** FNV-1a. */
function slotOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return (hash >>> 0) % slots;
}
