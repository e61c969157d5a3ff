import type { WhoAmIResponse } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { CliError } from '../core/errors.js';
import { exitCodes, type ExitCode } from '../core/exit-codes.js';
import { type CommandSpec } from '../core/program.js';
import { maskedKey } from '../core/settings.js';
import { unreachable } from '../http/failures.js';
import { bodyText, ConnectionBroken, Transport } from '../http/transport.js';

interface Check {
  check: string;
  state: 'ok' | 'bad' | 'skipped';
  detail: string;
}

/** More than this and times in lists, certificates and logs mislead. Milliseconds. */
const clockTolerance = 30_000;

/** `nebo doctor`: what stands between this machine and the API. */
export const doctor: CommandSpec = {
  usage: 'doctor',
  summary: 'check address, clock, proxy, key and rights',
  example: 'nebo doctor',
  async run(ctx) {
    const checks: Check[] = [];
    let exit: ExitCode = exitCodes.done;
    const bad = (check: string, detail: string, code: ExitCode) => {
      checks.push({ check, state: 'bad', detail });
      if (exit === exitCodes.done) exit = code;
    };
    const { apiUrl, key, keyFrom, profileName } = await ctx.account();
    const reached = await reach(ctx, apiUrl).catch((error: unknown) => {
      if (!(error instanceof CliError)) throw error;
      bad('address', error.message, error.exit);
      return null;
    });
    if (reached) {
      const { status, ms, skew } = reached;
      const detail = `${apiUrl} answers ${status} in ${ms} ms`;
      // 404: a door in front that does not pass /healthz on; the API itself is asked below.
      if (status < 500) checks.push({ check: 'address', state: 'ok', detail });
      else bad('address', `${detail}: the service says that it is not ready`, exitCodes.service);
      if (skew === null) checks.push({ check: 'clock', state: 'skipped', detail: 'the server says no time' });
      else if (Math.abs(skew) <= clockTolerance)
        checks.push({ check: 'clock', state: 'ok', detail: 'within 30 s of the server' });
      else
        bad(
          'clock',
          `this machine is ${Math.round(Math.abs(skew) / 1000)} s ${skew > 0 ? 'ahead of' : 'behind'} the server`,
          exitCodes.failed,
        );
    } else checks.push({ check: 'clock', state: 'skipped', detail: 'the server cannot be reached' });
    const proxies = ['HTTPS_PROXY', 'HTTP_PROXY', 'https_proxy', 'http_proxy'].filter(
      (name) => ctx.io.env[name],
    );
    checks.push({
      check: 'proxy',
      state: 'ok',
      detail: proxies.length > 0 ? `${proxies.join(', ')} is set` : 'none',
    });
    if (key === null)
      bad('key', `none for ${apiUrl} (profile "${profileName}"): nebo auth login`, exitCodes.key);
    else if (!reached)
      checks.push({ check: 'key', state: 'skipped', detail: 'the server cannot be reached' });
    else await checkKeyAndRights(ctx, checks, `${maskedKey(key)} from ${keyFrom}`, bad);
    await ctx.print.list(
      checks,
      [{ key: 'check' }, { key: 'state' }, { key: 'detail' }],
      ({ check }) => check,
    );
    if (exit !== exitCodes.done) {
      const failed = checks.filter(({ state }) => state === 'bad').map(({ check }) => check);
      throw new CliError(exit, 'unhealthy', `Not in order: ${failed.join(', ')}`);
    }
  },
};

async function reach(
  ctx: Context,
  apiUrl: string,
): Promise<{ status: number; ms: number; skew: number | null }> {
  const url = new URL('/healthz', apiUrl);
  const transport = new Transport(ctx.io.env);
  const began = Date.now();
  try {
    const answer = await transport.send({
      method: 'GET',
      url,
      headers: {},
      signal: ctx.signal,
      idleMs: 10_000,
    });
    const ms = Date.now() - began;
    await bodyText(answer, ctx.signal);
    const date = Date.parse(answer.headers.date ?? '');
    // The header is cut to whole seconds and was written about half-way.
    return {
      status: answer.statusCode ?? 0,
      ms,
      skew: Number.isNaN(date) ? null : began + ms / 2 - date - 500,
    };
  } catch (error) {
    if (error instanceof ConnectionBroken) throw unreachable(error, url.origin);
    throw error;
  } finally {
    transport.close();
  }
}

async function checkKeyAndRights(
  ctx: Context,
  checks: Check[],
  shown: string,
  bad: (check: string, detail: string, code: ExitCode) => void,
): Promise<void> {
  try {
    const me = await (await ctx.client()).get<WhoAmIResponse>('/account');
    checks.push({ check: 'key', state: 'ok', detail: `${shown}, account ${me.account_id}` });
    const rights = me.policy.map(
      ({ effect, actions, resources }) => `${effect} ${actions.join(', ')} on ${resources.join(', ')}`,
    );
    if (rights.length === 0)
      bad('rights', 'the policy of the key is empty: it may do nothing', exitCodes.right);
    else checks.push({ check: 'rights', state: 'ok', detail: rights.join('; ') });
  } catch (error) {
    if (!(error instanceof CliError) || error.exit === exitCodes.interrupted) throw error;
    bad('key', `${shown}: ${error.message}`, error.exit);
  }
}
