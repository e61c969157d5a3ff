import type { V1Build } from '@nebo/contracts';
import { standingOf } from './follow.js';

const standing = (status: string, state: string | null, more: Partial<V1Build> = {}) =>
  standingOf({ id: '1', app_id: '2', status, deploy_state: state, ...more } as V1Build);

describe('how a build stands', () => {
  test('live is the only success', () => {
    expect(standing('success', 'live')).toEqual({ is: 'live' });
    for (const state of [null, '', 'rolling', 'unverified', 'a-word-of-tomorrow'])
      expect(standing('success', state).is).toBe('going');
  });

  test.each(['error', 'failed', 'cancelled', 'canceled'])('status %s has failed', (status) => {
    expect(standing(status, null)).toMatchObject({ is: 'failed', step: 'build' });
    // A cancelled build is over although its state may still say "rolling".
    expect(standing(status, 'rolling').is).toBe('failed');
  });

  test.each(['failing', 'never_booted', 'stale_serving', 'booted'])(
    'state %s has failed at once',
    (state) => {
      expect(standing('success', state, { boot_error: 'why' })).toEqual({
        is: 'failed',
        step: 'rollout',
        reason: 'why',
      });
    },
  );

  test('unknown statuses wait', () => {
    for (const status of ['queued', 'building', 'a-word-of-tomorrow'])
      expect(standing(status, null).is).toBe('going');
  });
});
