import { ruble } from '@nebo/contracts';
import { type Billing, startBilling } from '../../test/billing.js';
import { MoneyModel, type Outcome } from '../../test/money-model.js';
import { Chance } from '../../test/random.js';

/** Sequences to run: 200 in `npm test`, more with NEBO_PROOF (`npm run proof -- money`); all follow from one number, NEBO_SEED. */
const sequences = Number(process.env['NEBO_PROOF'] || 200);
const firstSeed = Number(process.env['NEBO_SEED'] || 20_261_121);
const stepsPerSequence = 14;

describe('the ledger against a model in memory', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  const outcome = (answer: { status: number; body: { error?: { code: string } } }): Outcome =>
    answer.body.error?.code ?? 'ok';

  /** Until nothing held is over its time: what the service's own sweep has in hand at the moment is passed over here. */
  async function expired(account: string): Promise<void> {
    let left: unknown[];
    do {
      await billing.sql('select money_expire($1, 10)', [account]);
      left = await billing.sql(
        "select 1 from reservation where account_id = $1 and state = 'held' and expires_at <= now()",
        [account],
      );
    } while (left.length > 0);
  }

  async function sequence(seed: number): Promise<void> {
    const chance = new Chance(seed);
    const limit = BigInt(chance.int(20, 120)) * ruble;
    const model = new MoneyModel(100n * ruble, limit);
    const { account_id } = await billing.account();
    const { id: key_id } = (
      await billing.admin('inference-key-create', {
        account: account_id,
        monthly_limit: (limit / ruble).toString(),
      })
    ).body;
    const ids = [0, 1, 2, 3].map((number) => `${seed}-${number}`);
    const told: string[] = [];
    for (let step = 0; step < stepsPerSequence; step += 1) {
      const operation_id = chance.pick(ids);
      // Few different amounts, with odd ends, so that repeats and exact limits happen.
      const amount =
        BigInt(chance.pick([0, 1, 20, 20, 40, 70, 110])) * ruble + BigInt(chance.pick([0, 0, 1]));
      const part = chance.pick([null, amount]);
      const command = chance.pick([
        'topup',
        'credit',
        'reserve',
        'reserve',
        'reserve',
        'capture',
        'capture',
        'void',
        'expire',
        'refund',
      ] as const);
      const call = {
        operation_id,
        account_id,
        description: command,
        ...(part === null ? {} : { amount: part.toString() }),
      };
      let expected: Outcome = 'ok';
      let got: Outcome = 'ok';
      switch (command) {
        case 'topup':
        case 'credit': {
          if (amount === 0n) continue;
          expected = model[command](amount);
          const rubles = `${amount / ruble}.${(amount % ruble).toString().padStart(9, '0')}`;
          got = outcome(
            await billing.admin(command === 'topup' ? 'account-topup' : 'account-credits', {
              account: account_id,
              amount: rubles,
            }),
          );
          break;
        }
        case 'reserve': {
          const kind = chance.pick(['control', 'inference'] as const);
          const key = kind === 'inference' && chance.next() < 0.5;
          expected = model.reserve(operation_id, kind, key, amount);
          const body = {
            ...call,
            amount: amount.toString(),
            kind,
            expires_in_seconds: 3_600,
            ...(key ? { key_id } : {}),
          };
          got = outcome(await billing.money('reserve', body));
          break;
        }
        case 'expire':
          model.expire(operation_id);
          await billing.sql(
            "update reservation set expires_at = now() - interval '1 second' where state = 'held' and account_id = $1 and operation_id = $2",
            [account_id, operation_id],
          );
          // Half of them wait for the next call that touches them, or for the service's own sweep.
          if (chance.next() < 0.5) await billing.sql('select money_expire($1, 10)', [account_id]);
          break;
        case 'void':
          expected = model.void(operation_id);
          got = outcome(await billing.money('void', call));
          break;
        default:
          expected = model[command](operation_id, part);
          got = outcome(await billing.money(command, call));
      }
      told.push(`${command} ${operation_id} ${amount} ${part}`);
      expect({ seed, told, outcome: got }).toEqual({ seed, told, outcome: expected });
    }
    await expired(account_id);
    const [row] = await billing.sql(
      'select posted::text, held::text, credits::text, credits_held::text, topup_total::text, unlocked from balance where account_id = $1',
      [account_id],
    );
    expect({ seed, told, row }).toEqual({
      seed,
      told,
      row: {
        posted: `${model.posted}`,
        held: `${model.held}`,
        credits: `${model.credits}`,
        credits_held: `${model.creditsHeld}`,
        topup_total: `${model.topups}`,
        unlocked: model.unlocked,
      },
    });
    const [key] = await billing.sql('select used::text, captured::text from key_month where key_id = $1', [
      key_id,
    ]);
    expect({ seed, told, key: key ?? { used: '0', captured: '0' } }).toEqual({
      seed,
      told,
      key: { used: `${model.keyUsed}`, captured: `${model.keyCaptured}` },
    });
  }

  it(
    `${sequences} random sequences of operations never differ, and the ledger adds up afterwards`,
    async () => {
      let next = firstSeed;
      const last = firstSeed + sequences;
      // Several at once: accounts must not disturb each other.
      await Promise.all(
        [1, 2, 3, 4].map(async () => {
          while (next < last) await sequence(next++);
        }),
      );
      expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({
        ok: true,
        differences: [],
      });
    },
    60_000 + sequences * 500,
  );

  it('takes part in many different outcomes, or the sequences would prove little', async () => {
    const kinds = await billing.sql<{ kind: string; count: string }>(
      'select kind, count(*) from transfer group by kind',
    );
    expect(kinds.map((row) => row.kind).sort()).toEqual([
      'capture',
      'credit',
      'hold',
      'refund',
      'release',
      'topup',
    ]);
    const states = await billing.sql<{ state: string }>('select distinct state from reservation');
    expect(states.map((row) => row.state).sort()).toEqual(['captured', 'expired', 'held', 'void']);
  });
});
