import { getServers } from 'node:dns';
import { Inject, Injectable } from '@nestjs/common';
import type { ZoneStatus } from '@nebo/contracts';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Answer as PacketRecord, DecodedPacket } from 'dns-packet';
import { askResolver, type Server } from './resolver.js';

/** What a check of a delegation found. */
export interface Finding {
  /** Null: nothing could be learned, the status stays as it is. */
  status: ZoneStatus | null;
  /** For the user; null when all is well. */
  reason: string | null;
}

/** Asks `NEBO_DNS_RESOLVER` (by default the system's first) who a zone is delegated to. */
@Injectable()
export class DelegationCheck {
  private readonly servers: readonly Server[];

  constructor(@Inject(RUNTIME) { config }: Pick<Runtime, 'config'>) {
    const given = config.list('NEBO_DNS_RESOLVER');
    this.servers = (given.length > 0 ? given : getServers().slice(0, 2)).map(serverOf);
  }

  /**
   * The resolver may be a recursive one, which answers with the NS records, or the parent zone's own server, which refers to
   * them in the authority section: both count, by the owner name.
   * @param zone absolute @param wanted absolute names, all of which must be there
   */
  async look(zone: string, wanted: readonly string[]): Promise<Finding> {
    const [trouble, answer] = await this.ask(zone);
    if (!answer) return { status: null, reason: `the delegation could not be checked: ${trouble}` };
    const rcode = rcodeOf(answer);
    if (rcode === 'NXDOMAIN')
      return {
        status: 'pending',
        reason: `the parent zone does not know ${zone}: is the domain registered?`,
      };
    if (rcode !== 'NOERROR')
      return { status: null, reason: `the delegation could not be checked: the resolver answered ${rcode}` };
    const found = nameServersOf(zone, answer);
    const missing = wanted.filter((name) => !found.includes(name));
    if (missing.length === 0) return { status: 'active', reason: null };
    if (found.length === 0)
      return {
        status: 'pending',
        reason: `the parent zone does not delegate ${zone}; it has to name ${wanted.join(', ')}`,
      };
    return {
      status: 'pending',
      reason: `${zone} is delegated to ${found.join(', ')}; missing: ${missing.join(', ')}`,
    };
  }

  private async ask(zone: string): Promise<[string, DecodedPacket | null]> {
    let trouble = 'no resolver is configured';
    for (const server of this.servers) {
      try {
        return ['', await askResolver(server, zone, 'NS')];
      } catch (error) {
        trouble = (error as Error).message;
      }
    }
    return [trouble, null];
  }
}

const rcodeOf = (answer: DecodedPacket): string => (answer as unknown as { rcode: string }).rcode;

function nameServersOf(zone: string, { answers = [], authorities = [] }: DecodedPacket): string[] {
  const owned = (record: PacketRecord) => `${record.name.toLowerCase().replace(/\.$/, '')}.` === zone;
  const names = [...answers, ...authorities].flatMap((record) =>
    record.type === 'NS' && owned(record) ? [`${String(record.data).toLowerCase().replace(/\.$/, '')}.`] : [],
  );
  return [...new Set(names)].sort();
}

/** `host`, `host:port`, `[v6]:port`. */
function serverOf(text: string): Server {
  const match = /^\[([^\]]+)\](?::(\d+))?$/.exec(text) ?? /^([^:]+)(?::(\d+))?$/.exec(text);
  return match ? { host: match[1]!, port: Number(match[2] ?? 53) } : { host: text, port: 53 };
}
