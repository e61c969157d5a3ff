import { randomUUID } from 'node:crypto';
import { type Envelope, type EventBus, say } from '@nebo/bus';
import { appsEvents, type AuditEvent } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { type Billing, startBilling } from './billing.js';

/** Declares the tests of the audit log's intake over one transport; each spec file has one server of its own. */
export function auditIntakeTests(makeBus: () => Promise<{ bus: EventBus; stop(): Promise<void> }>): void {
  let made: Awaited<ReturnType<typeof makeBus>>;
  let bus: EventBus;
  let billing: Billing;

  beforeAll(async () => {
    made = await makeBus();
    bus = made.bus;
    billing = await startBilling({}, bus);
  }, 60_000);
  afterAll(async () => {
    await billing?.close();
    await made?.stop();
  });

  const created = (account: string, more: Partial<AuditEvent> = {}): Envelope<AuditEvent> =>
    appsEvents.auditWritten(
      {
        actor: `key:${randomUUID()}`,
        action: 'apps_create_app',
        resource: `app:${randomUUID()}`,
        project_id: randomUUID(),
        details: { name: 'shop', source_type: 'upload' },
        ...more,
      },
      { account, time: new Date('2026-11-20T10:00:00.000Z') },
    );
  const log = async (as: Awaited<ReturnType<Billing['account']>>['as']) =>
    (await billing.api('GET', 'audit-log', as)).body.data as Record<string, unknown>[];
  const until = async (condition: () => Promise<boolean>) => {
    for (let waited = 0; !(await condition()); waited += 20) {
      if (waited > 15_000) throw new Error('waited for 15 s');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };

  it('200 shows what was done elsewhere, with its actor, its time and its project', async () => {
    const { account_id, as } = await billing.account();
    const stranger = await billing.account();
    const event = created(account_id);
    await bus.publish([event]);
    await until(async () => (await log(as)).some((entry) => entry['action'] === 'apps_create_app'));
    const { actor, resource, project_id, details } = event.data;
    expect((await log(as))[0]).toEqual({
      id: event.id,
      at: '2026-11-20T10:00:00.000Z',
      actor,
      action: 'apps_create_app',
      resource,
      details: { ...details, project_id },
    });
    expect(JSON.stringify(await log(stranger.as))).not.toContain('apps_create_app');
  });

  it('each line once: doubles from the bus, from a relay that died, and after the inbox forgot', async () => {
    const { account_id, as } = await billing.account();
    const events = [1, 2, 3].map((number) => created(account_id, { details: { number } }));
    // The bus drops some doubles by id itself; a second publish after a pause and in other company may pass.
    await bus.publish(events);
    await bus.publish([events[1]!, ...events]);
    const last = created(account_id, { action: 'apps_delete_app_route', project_id: null, details: {} });
    await until(async () => (await log(as)).filter((e) => e['action'] === 'apps_create_app').length === 3);
    await billing.sql('delete from inbox where event_id = any($1::uuid[])', [events.map(({ id }) => id)]);
    await bus.publish([...events, last]);
    await until(async () => (await log(as)).some((entry) => entry['action'] === 'apps_delete_app_route'));
    const mine = (await log(as)).filter((entry) => String(entry['action']).startsWith('apps_'));
    expect(mine.map((entry) => entry['id']).sort()).toEqual([...events, last].map(({ id }) => id).sort());
    expect(mine.find((entry) => entry['id'] === last.id)).toMatchObject({ details: {} });
  });

  it('a line said in a transaction that fails is never heard, one that commits is', async () => {
    const { account_id, as } = await billing.account();
    const database = new Database({
      url: billing.nebo.runtime.databaseUrl('identity_billing'),
      schema: 'identity_billing',
    });
    const [lost, kept] = [created(account_id), created(account_id)];
    const failing = database.transaction(async (tx) => {
      await say(tx, lost);
      throw new Error('the act failed');
    });
    await expect(failing).rejects.toThrow('the act failed');
    await database.transaction((tx) => say(tx, kept));
    await until(async () => (await log(as)).some((entry) => entry['id'] === kept.id));
    expect((await log(as)).map((entry) => entry['id'])).not.toContain(lost.id);
    await database.close();
  });
}
