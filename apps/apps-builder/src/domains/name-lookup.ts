import { getServers, promises as dns } from 'node:dns';
import { isIP } from 'node:net';
import { Inject, Injectable } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';

/** One try, milliseconds; a name has two of them at each server. */
const tryMs = 2_000;
/** The resolver has answered, and there is nothing. */
const nothing = new Set(['ENOTFOUND', 'ENODATA']);

/** Addresses that a name leads to, by family; null: nothing could be learned of it. */
export interface SeenAddresses {
  four: string[] | null;
  six: string[] | null;
}

/** Asks `NEBO_DNS_RESOLVER` (by default the system's) what the world sees of a name. */
@Injectable()
export class NameLookup {
  private readonly servers: readonly string[];
  private resolver: Promise<dns.Resolver> | null = null;

  constructor(@Inject(RUNTIME) { config }: Pick<Runtime, 'config'>) {
    const given = config.list('NEBO_DNS_RESOLVER');
    this.servers = given.length > 0 ? given : getServers();
  }

  /** Values of TXT records, their parts joined; null: nothing could be learned. */
  async texts(name: string): Promise<string[] | null> {
    const found = await this.ask((resolver) => resolver.resolveTxt(name));
    return found?.map((parts) => parts.join('')) ?? null;
  }

  /** Addresses of a name, aliases followed. */
  async addresses(name: string): Promise<SeenAddresses> {
    const [four, six] = await Promise.all([
      this.ask((resolver) => resolver.resolve4(name)),
      this.ask((resolver) => resolver.resolve6(name)),
    ]);
    return { four, six };
  }

  private async ask<T>(question: (resolver: dns.Resolver) => Promise<T[]>): Promise<T[] | null> {
    try {
      return await question(await (this.resolver ??= this.open()));
    } catch (error) {
      if (nothing.has((error as NodeJS.ErrnoException).code ?? '')) return [];
      return null;
    }
  }

  /** The resolver of Node takes addresses only; the names of its servers are looked up once. */
  private async open(): Promise<dns.Resolver> {
    try {
      const servers = await Promise.all(this.servers.map(addressOf));
      const resolver = new dns.Resolver({ timeout: tryMs, tries: 2 });
      resolver.setServers(servers);
      return resolver;
    } catch (error) {
      // Not remembered: the name of the resolver may be known later.
      this.resolver = null;
      throw error;
    }
  }
}

/** `host`, `host:port`, `[v6]:port` as Node wants it. */
async function addressOf(text: string): Promise<string> {
  if (isIP(text) !== 0) return text;
  const match = /^\[([^\]]+)\](?::(\d+))?$/.exec(text) ?? /^([^:]+)(?::(\d+))?$/.exec(text);
  const [host, port] = [match?.[1] ?? text, match?.[2] ?? '53'];
  const address = isIP(host) === 0 ? (await dns.lookup(host)).address : host;
  return isIP(address) === 6 ? `[${address}]:${port}` : `${address}:${port}`;
}
