import type { V1Build } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { spoken } from '../core/duration.js';
import { CliError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { rest, type ApiClient } from '../http/client.js';
import { readBuild } from './builds.js';
import { followLog } from './log.js';

/** Without `--timeout`. Milliseconds. */
const defaultWaitMs = 30 * 60_000;
/** How long the log may still come after the build has ended. Milliseconds. */
const logGraceMs = 10_000;
const tailLines = 50;

const badStatuses = new Set(['error', 'failed', 'cancelled', 'canceled']);
const badStates = new Set(['failing', 'never_booted', 'build_failed', 'stale_serving', 'booted']);

/** How a build stands: `live` is the only success, and unknown words mean "wait" (4-client-behaviours.md section 0). */
export type Standing =
  | { is: 'going'; step: 'queued' | 'building' | 'rolling out' }
  | { is: 'live' }
  | { is: 'failed'; step: 'build' | 'rollout'; reason: string };

/** Reads a build's standing from its two words. */
export function standingOf(build: V1Build): Standing {
  const { status, deploy_state: state, error, boot_error: bootError } = build;
  if (badStatuses.has(status) || state === 'build_failed')
    return {
      is: 'failed',
      step: 'build',
      reason:
        error ??
        (/^cancel/.test(status)
          ? 'it was cancelled or overtaken by a newer build'
          : 'the server gave no reason'),
    };
  if (state === 'live') return { is: 'live' };
  if (state && badStates.has(state))
    return { is: 'failed', step: 'rollout', reason: bootError ?? error ?? `its state is ${state}` };
  if (status === 'queued') return { is: 'going', step: 'queued' };
  return { is: 'going', step: status === 'success' ? 'rolling out' : 'building' };
}

/**
 * Waits until a build serves, with its log on stderr meanwhile.
 * @param lookAgain the command that shows the build later
 * @returns the live build
 * @throws CliError exit 1 when it failed, 10 after the limit, 130 on Ctrl-C
 */
export async function followBuild(
  ctx: Context,
  client: ApiClient,
  appId: string,
  buildId: string,
  lookAgain: string,
): Promise<V1Build> {
  const began = Date.now();
  const signal = ctx.waitSignal(defaultWaitMs);
  const limit = ctx.early.timeoutMs ?? defaultWaitMs;
  const tail: string[] = [];
  const stopLog = new AbortController();
  const log = followLog(
    client,
    appId,
    buildId,
    (line) => {
      if (tail.push(line) > tailLines) tail.shift();
      ctx.talk.logLine(line);
    },
    () => ctx.talk.notice('The connection of the log was lost, resuming.'),
    AbortSignal.any([signal, stopLog.signal]),
  ).catch((error: unknown) => error);
  try {
    const build = await untilSettled(ctx, client, appId, buildId, began, limit, signal);
    // The log ends on its own, after its last stored line; a log that does not must not hold a deploy that is done.
    const ended = await Promise.race([log, rest(logGraceMs, stopLog.signal).catch(() => null)]);
    if (ended instanceof CliError) ctx.talk.notice(`The log could not be read: ${ended.message}`);
    else if (!ended || ended instanceof Error || !(ended as { complete: boolean }).complete)
      ctx.talk.notice('The log may be cut.');
    const standing = standingOf(build);
    if (standing.is !== 'failed') return build;
    throw failed(ctx, build, standing, tail, lookAgain);
  } catch (error) {
    if (
      error instanceof CliError &&
      (error.exit === exitCodes.timeout || error.exit === exitCodes.interrupted)
    )
      throw error.withHint(`The deploy goes on without you. Look again: ${lookAgain}`);
    throw error;
  } finally {
    stopLog.abort(new Error('the build has ended'));
    ctx.talk.clear();
  }
}

async function untilSettled(
  ctx: Context,
  client: ApiClient,
  appId: string,
  buildId: string,
  began: number,
  limit: number,
  signal: AbortSignal,
): Promise<V1Build> {
  let told = '';
  let heartbeat = began;
  let step = 'queued';
  const clock = setInterval(
    () => ctx.talk.status(`${step} · ${spoken(Date.now() - began)} of at most ${spoken(limit)}`),
    1000,
  );
  try {
    for (;;) {
      const build = await readBuild(client, appId, buildId, signal);
      // A build that was just made may be missing from the list of an older server: it counts as queued.
      const standing: Standing = build ? standingOf(build) : { is: 'going', step: 'queued' };
      if (build && standing.is !== 'going') return build;
      if (standing.is === 'going') step = standing.step;
      const now = Date.now();
      // In a CI log silence looks like a hang, and a line per second is a flood.
      if (step !== told || (!ctx.talk.live && now - heartbeat >= 60_000)) {
        ctx.talk.notice(
          told === step ? `still ${step} after ${spoken(now - began)}` : `${step} (${spoken(now - began)})`,
        );
        told = step;
        heartbeat = now;
      }
      await rest(pollMs(now - began), signal);
    }
  } finally {
    clearInterval(clock);
  }
}

/** A static site is built in a second or two, a server in minutes. Milliseconds, both ways. */
const pollMs = (waited: number): number => (waited < 5000 ? 300 : waited < 60_000 ? 1000 : 2000);

function failed(
  ctx: Context,
  build: V1Build,
  { step, reason }: { step: string; reason: string },
  tail: readonly string[],
  lookAgain: string,
): CliError {
  const shown = !ctx.talk.options.quiet;
  return new CliError(exitCodes.failed, 'deploy_failed', `The ${step} failed: ${reason}`, {
    // The log has just been printed line by line, unless --quiet kept it back.
    lines: shown || tail.length === 0 ? [] : [`The last ${tail.length} lines of the log:`, ...tail],
    hint: lookAgain.replace('build show', 'build logs'),
    extra: { step, reason, build_id: build.id, app_id: build.app_id, log: tail },
  });
}
