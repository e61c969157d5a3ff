import { randomUUID } from 'node:crypto';
import type { SliceSettlement } from '@nebo/contracts';
import { ApiError } from '@nebo/service-kit';
import { pino } from 'pino';
import { TestClock } from '../../test/money-world.js';
import { Delivery } from './delivery.js';
import type { Segment, SettlementLog } from './settlement-log.js';

describe('the delivery of settlements', () => {
  const charged: string[] = [];
  let answers: (ApiError | null)[];
  let acknowledged: number;
  let delivery: Delivery;
  const segment: Segment = { name: 's', open: 1, closed: true, corrupt: false };
  beforeEach(() => {
    charged.length = acknowledged = 0;
    answers = [];
    delivery = new Delivery(
      randomUUID(),
      {
        settle: ({ settlements }) => {
          const error = answers.shift();
          if (error) return Promise.reject(error);
          const settled = settlements.map(({ operation_id: id }) => id);
          charged.push(...settled);
          return Promise.resolve({ settled, refused: [] });
        },
      },
      { acknowledged: async () => void (acknowledged += 1) } as unknown as SettlementLog,
      new TestClock(),
      pino({ level: 'silent' }),
      { failure: () => undefined },
    );
  });
  afterEach(() => delivery.stop());
  const add = (id: string) =>
    delivery.add({ operation_id: id, amount: '5' } as SliceSettlement, null, segment);

  // An older release behind the same name, a proxy that knows no such path: none of them has looked at the settlement.
  it.each([401, 403, 404, 405, 409, 415, 429, 500, 503])(
    'gives none up because of a %s that says nothing about it',
    async (status) => {
      answers = [new ApiError(status, 'unknown_operation', 'the API has no such operation')];
      add('a');
      expect(await delivery.drain(10_000)).toBe(true);
      expect(charged).toEqual(['a']);
      expect(acknowledged).toBe(1);
    },
  );

  it('gives up the one that makes a call wrong, and it alone', async () => {
    const wrong = new ApiError(422, 'validation_error', 'no');
    // Both; then the first half; the second half is well.
    answers = [wrong, wrong, null];
    add('bad');
    add('good');
    expect(await delivery.drain(10_000)).toBe(true);
    expect(charged).toEqual(['good']);
    expect(acknowledged).toBe(2);
  });
});
