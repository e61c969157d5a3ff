import type { Api, ApiAnswer } from './api.js';
import type { Chance } from './chance.js';
import type { RegionGround } from './region-ground.js';

/** What there is to order, the same for all accounts. */
export interface Catalogue {
  region: string;
  /** By price, the cheapest first. */
  plans: { id: string }[];
  image: string;
}

export interface Vm {
  id: string;
  name: string;
  vpc: string | null;
  ephemeral: boolean;
  slots: number;
  power: 'running' | 'stopped';
  /** It was seen active once: it is made, and stays so. */
  made: boolean;
  deleted: boolean;
  /** Interface, once it was seen. */
  port: string | null;
  /** Its network was deleted before it had an address: it cannot be made. */
  maybeLost: boolean;
}

export interface Vpc {
  id: string;
  name: string;
  subnet: string;
  nat: 'none' | 'on' | 'going';
  deleted: boolean;
}

export interface Fip {
  id: string;
  /** The machine whose interface it is attached to. */
  on: string | null;
  /** Something was on it before, whose end may not have come yet. */
  used: boolean;
  released: boolean;
}

export interface Reserved {
  id: string;
  vpc: string;
  address: string;
  mac: string;
  deleted: boolean;
}

export interface Backup {
  id: string;
  vm: string;
  deleted: boolean;
}

/** Things of each kind that an account has at a time. */
export const most = { vms: 6, vpcs: 4, fips: 3, reserved: 4, backups: 4 };

/** One account, what it has, and how it asks. */
export class Actor {
  readonly vms: Vm[] = [];
  readonly vpcs: Vpc[] = [];
  readonly fips: Fip[] = [];
  readonly reserved: Reserved[] = [];
  readonly backups: Backup[] = [];
  /** How often each operation was answered how. */
  readonly told = new Map<string, number>();
  protected number = 0;
  private readonly last: string[] = [];

  constructor(
    protected readonly ground: RegionGround,
    readonly api: Api,
    readonly account: { id: string; project: string },
    protected readonly catalogue: Catalogue,
    protected readonly chance: Chance,
    /** False: it has no money, so every order is refused and nothing is ever made. */
    protected readonly rich: boolean,
  ) {}

  protected async ask(
    method: string,
    path: string,
    body: unknown,
    allowed: readonly string[],
  ): Promise<ApiAnswer & { word: string }> {
    const answer = await this.ground.call(this.api, method, path, body);
    const code = answer.body?.error?.code as string | undefined;
    let word = code === undefined ? `${answer.status}` : `${answer.status} ${code}`;
    // The first one did it, and its answer was lost.
    const did = allowed.find((one) => /^2\d\d$/.test(one));
    if (method === 'DELETE' && answer.status === 404 && answer.repeats > 0 && did) word = did;
    const what = `${method} ${path.replaceAll(/[0-9a-f-]{36}/g, '…').split('?')[0]}: ${word}`;
    this.told.set(what, (this.told.get(what) ?? 0) + 1);
    this.last.push(`${method} ${path} ${body ? JSON.stringify(body) : ''} → ${word}`);
    if (!allowed.includes(word) && !allowed.includes(`${answer.status}`))
      throw new Error(
        `expected ${allowed.join(' or ')}: ${answer.text.slice(0, 400)}\nof account ${this.account.id}, at last:\n${this.last.slice(-12).join('\n')}`,
      );
    return { ...answer, word };
  }

  protected some<T>(items: readonly T[]): T | undefined {
    return items.length > 0 ? this.chance.pick(items) : undefined;
  }

  /** Mostly one that lives, now and then one that is deleted. */
  protected oneOf<T extends { deleted: boolean }>(items: readonly T[]): T | undefined {
    const living = items.filter(({ deleted }) => !deleted);
    return this.some(this.chance.int(1, 12) === 1 || living.length === 0 ? items : living);
  }

  protected living<T extends { deleted: boolean }>(items: readonly T[]): T[] {
    return items.filter(({ deleted }) => !deleted);
  }

  /** Orders of an account without money end here. */
  protected orders(...allowed: string[]): string[] {
    return this.rich
      ? allowed
      : ['402 insufficient_balance', ...allowed.filter((word) => word.startsWith('4'))];
  }

  protected async listed(path: string): Promise<{ id: string; name: string; status: string }[]> {
    return (await this.ask('GET', path, undefined, ['200'])).body.data;
  }

  protected same(
    what: string,
    shown: readonly { id: string }[],
    known: readonly { id: string; gone: boolean }[],
  ): void {
    const ids = new Set(shown.map(({ id }) => id));
    const missing = known.filter(({ id, gone }) => !gone && !ids.has(id));
    if (missing.length > 0)
      throw new Error(`${what} are not listed: ${missing.map(({ id }) => id).join(', ')}`);
    const strange = [...ids].filter((id) => !known.some((one) => one.id === id));
    if (strange.length > 0) throw new Error(`${what} are listed that nobody made: ${strange.join(', ')}`);
  }
}
