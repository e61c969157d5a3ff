import { compare, type Comparison, type Difference } from './compare.js';
import { type Ask, takeSnapshot } from './snapshot.js';

export interface AuditReport extends Comparison {
  /** Nothing is lost or left over. Things may be under way. */
  ok: boolean;
  /** How often everything was looked at, and for how long. */
  looks: number;
  seconds: number;
}

export interface AuditOptions {
  /** How long things may take that are under way, seconds. */
  settleSeconds: number;
  /** How long a region's agent may take to answer, milliseconds. */
  agentMs?: number;
  /** Between two looks, milliseconds. */
  everyMs?: number;
}

const keyOf = ({ rule, thing }: Difference) => `${rule} ${thing}`;

/** What differs must be seen for so long before it counts, milliseconds; never longer than the time to settle. */
const standingMs = 3_000;

/**
 * Compares services, billing and the regions' hosts until nothing differs and nothing is under way, or the time to settle is
 * over. What differs counts when every look of the last seconds has seen it.
 * @throws Error when a service does not answer
 */
export async function audit(ask: Ask, options: AuditOptions): Promise<AuditReport> {
  const { settleSeconds, agentMs = 15_000, everyMs = 500 } = options;
  const began = Date.now();
  const end = began + settleSeconds * 1_000;
  const needed = Math.min(standingMs, settleSeconds * 1_000);
  let since = new Map<string, number>();
  for (let looks = 1; ; looks += 1) {
    const { differences, ...rest } = compare(await takeSnapshot(ask, agentMs));
    const now = Date.now();
    since = new Map(differences.map(keyOf).map((key) => [key, since.get(key) ?? now]));
    const left = differences.filter((one) => now - since.get(keyOf(one))! >= needed);
    const isQuiet = differences.length === 0 && rest.under_way.length === 0;
    // What was seen for the first time just now gets its time too, but not for ever.
    const isOver = now >= end && (left.length === differences.length || now >= end + 4 * needed);
    if (isQuiet || isOver)
      return { ok: left.length === 0, differences: left, ...rest, looks, seconds: (now - began) / 1_000 };
    await new Promise((done) => setTimeout(done, everyMs));
  }
}

/** The report for people. */
export function auditText({ ok, differences, under_way, counted, looks, seconds }: AuditReport): string {
  const kinds = Object.entries(counted)
    .map(([kind, count]) => `${count} ${kind}`)
    .join(', ');
  const lines = [
    `compared in ${looks} looks, ${seconds.toFixed(1)} s: ${kinds || 'nothing there'}`,
    ...differences.map(({ rule, text }) => `x ${rule}: ${text}`),
    ...under_way.map(({ thing, state }) => `  under way: ${thing} (${state})`),
    ok ? 'nothing is lost and nothing is left over' : `${differences.length} differences`,
  ];
  return `${lines.join('\n')}\n`;
}
