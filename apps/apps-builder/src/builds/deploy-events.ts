import type { V1DeployEvent } from '@nebo/contracts';
import { idOrNull } from '@nebo/service-kit';
import { type BuildColumns, isOver } from './build.mapper.js';

type Watched = Pick<BuildColumns, 'id' | 'status' | 'deploy_state' | 'error' | 'boot_error'>;

/** States in their order; what ends a build comes behind them all. */
const steps = ['queued', 'building', 'built', 'rolling'] as const;
/** Place of the states that end it. */
const last = steps.length;

/** How far somebody has read a stream: `<build>:<place of the state>`, the id of its events. */
export interface Heard {
  buildId: string;
  place: number;
}

/** @returns null for what is no id of an event */
export function readHeard(header: string | string[] | undefined): Heard | null {
  const match = typeof header === 'string' ? /^([0-9a-f-]{36}):([0-4])$/i.exec(header) : null;
  const buildId = match === null ? null : idOrNull(match[1]!);
  return buildId === null ? null : { buildId, place: Number(match![2]) };
}

/** One word for where a build stands, and the place of that word. */
export function stateOf(build: Watched): { state: string; place: number } {
  const { status, deploy_state } = build;
  if (status === 'error') return { state: 'build_failed', place: last };
  if (status === 'cancelled') return { state: 'cancelled', place: last };
  if (isOver(build)) return { state: deploy_state!, place: last };
  if (status === 'success') return deploy_state === null ? at(2) : at(3);
  return at(status === 'building' ? 1 : 0);
}

const at = (place: number) => ({ state: steps[place]!, place });

/** What the stream says of a build. */
export function deployEvent(build: Watched): V1DeployEvent {
  const { id, status, deploy_state, error, boot_error } = build;
  const { state } = stateOf(build);
  // On the way too: a rollout that waits for something says for what.
  const reason = state === 'live' ? null : (boot_error ?? error);
  return { build_id: id, state, reason, status, deploy_state, error, boot_error };
}

/**
 * The events that a reader has not heard: the present state, and before it those that a build must have gone through since
 * the last one that was heard. A build that failed says no more than that.
 * @param heard place of the last state that was heard; null: none, then the present one is enough
 */
export function eventsSince(build: Watched, heard: number | null): { place: number; event: V1DeployEvent }[] {
  const present = deployEvent(build);
  const { place, state } = stateOf(build);
  const events: { place: number; event: V1DeployEvent }[] = [];
  if (heard !== null && build.status === 'success') {
    const until = state === 'live' ? place : Math.min(place, 3);
    for (let step = heard + 1; step < until; step += 1) {
      const status = step === 1 ? 'building' : 'success';
      const deploy_state = step === 3 ? 'rolling' : null;
      events.push({
        place: step,
        event: { ...present, state: steps[step]!, reason: null, status, deploy_state },
      });
    }
  }
  return [...events, { place, event: present }];
}

/** A block of the stream. */
export const eventBlock = (buildId: string, place: number, data: string): string =>
  `id: ${buildId}:${place}\nevent: status\ndata: ${data}\n\n`;
