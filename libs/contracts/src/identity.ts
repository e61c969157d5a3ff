import { createHmac, timingSafeEqual } from 'node:crypto';

/** One statement of a key's policy, as in the contract (`V1PolicyStatement`). */
export interface PolicyStatement {
  effect: 'allow' | 'deny';
  /** `vm:read`, `vm:*`, `*`. */
  actions: string[];
  /** `*`, `project:<id>`, `app:<id>`, … */
  resources: string[];
}

/** A control-API key, acting for its account under its policy. */
export interface KeyIdentity {
  kind: 'key';
  account_id: string;
  key_id: string;
  policy: PolicyStatement[];
  /** Null: no allow-list. */
  project_ids: string[] | null;
  /** Live role of the member who issued the key. */
  role: Role;
}

/** An inference key at `{ai_url}`. */
export interface InferenceIdentity {
  kind: 'inference';
  account_id: string;
  key_id: string;
  /** Null: every model. */
  models: string[] | null;
  /** 10⁻⁹ rubles per calendar month (UTC) as a decimal string of the integer; null: no limit. */
  monthly_limit: string | null;
}

/** A region's agent. */
export interface AgentIdentity {
  kind: 'agent';
  region_id: string;
  epoch: number;
}

/** Another service of this installation, acting for an account (or null for work of all accounts). */
export interface ServiceIdentity {
  kind: 'service';
  service: string;
  account_id: string | null;
}

export type Identity = KeyIdentity | InferenceIdentity | AgentIdentity | ServiceIdentity;

export type Role = 'owner' | 'admin' | 'developer' | 'billing' | 'reader';

/** Header in which the caller's signed identity travels between gateway and services. */
export const identityHeader = 'x-nebo-identity';

/** All headers with this prefix are internal; the gateway strips them from what clients send. */
export const internalHeaderPrefix = 'x-nebo-';

/** Media type that a git host gave the body of its delivery; the body itself travels as plain bytes, as it was signed. */
export const hookTypeHeader = 'x-nebo-hook-type';

interface Envelope {
  id: Identity;
  /** Unix seconds after which the signature counts no more. */
  exp: number;
}

/**
 * Signs and reads identities. Signatures are HMAC-SHA256 over the payload with a key of the installation, so that a
 * service reached around the gateway trusts nobody. A signed header may be reused for the seconds of its life: what it
 * holds does not depend on the request.
 */
export class IdentitySigner {
  private readonly verified = new Map<string, Envelope>();
  /** What was signed for callers that come again, by identity. */
  private readonly signed = new Map<string, { header: string; until: number }>();

  constructor(private readonly secret: Buffer) {}

  /** @param lifeSeconds how long the header counts; at least twice the time that a caller keeps it */
  sign(identity: Identity, lifeSeconds = 60): string {
    const envelope: Envelope = { id: identity, exp: Math.floor(Date.now() / 1000) + lifeSeconds };
    const payload = Buffer.from(JSON.stringify(envelope)).toString('base64url');
    return `${payload}.${this.mac(payload)}`;
  }

  /**
   * The same for who calls again and again: one header serves for a quarter of its life. Neither side computes a signature
   * then, since the reader remembers what it has verified.
   */
  signOften(identity: Identity): string {
    const about = JSON.stringify(identity);
    const now = Date.now();
    const known = this.signed.get(about);
    if (known && known.until > now) return known.header;
    const header = this.sign(identity);
    if (this.signed.size >= 1_000) this.signed.clear();
    this.signed.set(about, { header, until: now + 15_000 });
    return header;
  }

  /** The identity, or null when the header is absent, forged or expired. */
  read(header: string | undefined): Identity | null {
    if (!header) return null;
    const now = Date.now() / 1000;
    const known = this.verified.get(header);
    if (known) return known.exp > now ? known.id : null;
    const dot = header.lastIndexOf('.');
    const payload = header.slice(0, dot);
    const given = Buffer.from(header.slice(dot + 1));
    const wanted = Buffer.from(this.mac(payload));
    if (dot < 1 || given.length !== wanted.length || !timingSafeEqual(given, wanted)) return null;
    const envelope = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Envelope;
    if (envelope.exp <= now) return null;
    // The same header comes with each request of a key for some seconds; verifying it once saves an HMAC a request.
    if (this.verified.size >= 1_000) this.verified.clear();
    this.verified.set(header, envelope);
    return envelope.id;
  }

  private mac(payload: string): string {
    return createHmac('sha256', this.secret).update(payload).digest('base64url');
  }
}
