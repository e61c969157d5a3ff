import { parseRubles } from '@nebo/contracts';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Chance } from '../harness/chance.js';
import { until } from '../harness/nebo.js';
import { type Audit, RegionGround } from '../harness/region-ground.js';
import type { Catalogue } from '../harness/region-actor.js';
import { RegionActor } from '../harness/region-model.js';
import { findNatsServer } from '../harness/split.mjs';

/**
 * Operations: 500 in `npm test`, more with NEBO_PROOF (`npm run proof -- region`); one kill for each hundred. What is done
 * follows from one number, NEBO_SEED; when it is answered does not.
 */
const operations = Number(process.env['NEBO_PROOF'] || 500);
const seed = Number(process.env['NEBO_SEED'] || 20_261_121);
const every = 100;
/** Accounts that do things at the same time; the last one has no money. */
const accounts = 6;
const settleSeconds = 60;

(findNatsServer() ? describe : describe.skip)(
  `machines and networks against a model (NEBO_SEED=${seed})`,
  () => {
    let ground: RegionGround;
    const actors: RegionActor[] = [];
    beforeAll(async () => {
      ground = await RegionGround.start(new Chance(seed), every);
      const contract = new ContractCheck(readContract('v1'));
      const found: Awaited<ReturnType<RegionGround['account']>>[] = [];
      for (let number = 0; number < accounts; number += 1)
        found.push(await ground.account(`model ${number}`, number < accounts - 1 ? 100_000 : 0));
      const api = new Api(ground.split.baseUrl, found[0]!.key, contract);
      const [region] = (await api.get('/regions')).body.data;
      const plans = (await api.get('/vm-plans')).body.data;
      const { images } = (await api.get(`/projects/${found[0]!.project}/images?cluster_id=${region.id}`))
        .body;
      const catalogue: Catalogue = { region: region.id, plans, image: images[0].id };
      for (const [number, account] of found.entries()) {
        const chance = new Chance(seed + 1 + number);
        const rich = number < accounts - 1;
        actors.push(new RegionActor(ground, api.as(account.key), account, catalogue, chance, rich));
      }
    }, 180_000);
    afterAll(() => ground?.stop(), 60_000);

    const quiet = async (): Promise<Audit> => {
      let report!: Audit;
      await until(async () => {
        report = await ground.audit(settleSeconds);
        return !report.ok || report.under_way.length === 0;
      }, 180_000);
      return report;
    };

    it(
      `${operations} operations with ${Math.floor(operations / every)} kills: every answer is one that may be, nothing is lost or left over`,
      async () => {
        let left = operations;
        const run = async (actor: RegionActor) => {
          while (left > 0) {
            left -= 1;
            await actor.step();
            await ground.tick();
          }
        };
        // One that is refuted ends the others too: nobody goes on when the ground is taken away.
        const refuted = (error: unknown) => {
          left = 0;
          throw error;
        };
        const ends = await Promise.allSettled(actors.map((actor) => run(actor).catch(refuted)));
        await ground.calm();
        for (const end of ends) if (end.status === 'rejected') throw end.reason;
        expect(ground.kills).toBe(Math.floor(operations / every));
        expect(await quiet()).toMatchObject({ differences: [], under_way: [] });
        for (const actor of actors) await actor.settled();

        // Half of the accounts keep what they have.
        for (const [number, actor] of actors.entries()) {
          if (number % 2 === 0) continue;
          await actor.deleteAll(async () => {
            expect(await quiet()).toMatchObject({ differences: [], under_way: [] });
          });
        }
        const report = await quiet();
        expect(report).toMatchObject({ ok: true, differences: [], under_way: [] });
        for (const [number, actor] of actors.entries()) {
          await actor.settled();
          if (number % 2 === 0) continue;
          for (const kind of ['vm', 'vpc', 'floating_ip', 'port'])
            expect(await rowsOf(actor, kind)).toEqual({ kind, rows: 0 });
        }
      },
      120_000 + operations * 400,
    );

    it('money: each balance is what was paid in less what was charged, and each made machine is paid once', async () => {
      for (const actor of actors) {
        const { id } = actor.account;
        const { rows } = await ground.sql.query<{ posted: string; held: string; left: string }>(
          `select b.posted::text, b.held::text, coalesce(-sum(l.amount) filter (where l.book in ('topup', 'revenue')), 0)::text as left
         from identity_billing.balance b left join identity_billing.ledger_line l on l.account_id = b.account_id
         where b.account_id = $1 group by b.account_id`,
          [id],
        );
        // Money that spans take meanwhile is in both.
        const { posted, held, left } = rows[0]!;
        expect({ posted, held }).toEqual({ posted: left, held: '0' });
        const { balance } = (await actor.api.get('/account/balance')).body as { balance: string };
        expect(parseRubles(balance)).toBeLessThanOrEqual(BigInt(left));
        const made = actor.vms.filter((vm) => vm.made && !vm.ephemeral).map((vm) => vm.id);
        const { rows: periods } = await ground.sql.query<{ operation_id: string }>(
          `select operation_id from identity_billing.reservation where account_id = $1 and operation_id = any($2)
           and state = 'captured' and captured > 0 and refunded = 0`,
          [id, made],
        );
        expect(periods.map(({ operation_id }) => operation_id).sort()).toEqual(made.sort());
      }
    });

    it('everything was tried, and the account without money made nothing', () => {
      const told = new Map<string, number>();
      for (const actor of actors)
        for (const [what, count] of actor.told) told.set(what, (told.get(what) ?? 0) + count);
      const successes = [...told.keys()]
        .filter((what) => /: 2\d\d$/.test(what))
        .map((what) => what.split(':')[0]!);
      for (const what of [
        ...[
          'POST /projects/…/vms',
          'DELETE /vms/…',
          'PATCH /vms/…',
          'POST /vms/…/stop',
          'POST /vms/…/backups',
        ],
        ...['POST /vpcs', 'DELETE /vpcs/…', 'POST /vpcs/…/nat-gateway', 'DELETE /vpcs/…/nat-gateway'],
        ...['POST /floating-ips', 'POST /floating-ips/…/attach', 'POST /vpcs/…/reserved-ips'],
      ])
        expect(successes).toContain(what);
      const poor = actors.at(-1)!;
      expect([poor.vms, poor.fips]).toEqual([[], []]);
      expect(poor.told.get('POST /projects/…/vms: 402 insufficient_balance')).toBeGreaterThan(0);
    });

    async function rowsOf(actor: RegionActor, kind: string): Promise<{ kind: string; rows: number }> {
      const schema = kind === 'vm' ? 'compute' : 'networking';
      const { rows } = await ground.sql.query<{ rows: number }>(
        `select count(*)::int as rows from ${schema}.${kind} where account_id = $1`,
        [actor.account.id],
      );
      return { kind, rows: rows[0]!.rows };
    }
  },
);
