import { sharedPostgres } from '@nebo/test-kit';
import pg from 'pg';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

describe('what a reader of the feed has skipped since it was locked', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let ear: pg.Client;
  const heard: string[] = [];
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
    ear = new pg.Client({ connectionString: bench.databaseUrl });
    await ear.connect();
    ear.on('notification', ({ payload }) => heard.push(payload ?? ''));
    await ear.query('listen compute_changed');
  });
  afterAll(async () => {
    await ear?.end();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  /** Changed in something that has no number, while a reader comes by and after it. @returns how often the feed was announced */
  const announcedBy = async (table: 'vm' | 'vm_backup', id: string, write: string): Promise<number> => {
    const held = await bench.hold(`select 1 from ${table} where id = $1 for update`, [id]);
    const skipped = await agent.poll();
    expect(skipped.items.filter((item) => item.id === id)).toEqual([]);
    heard.length = 0;
    await held.query(`update ${table} set ${write} where id = $1`, [id]);
    await held.release();
    await bench.sql("select pg_notify('compute_changed', 'the end')");
    await eventually('all notifications', () => Promise.resolve(heard.includes('the end')));
    return heard.filter((topic) => topic === `wanted:${bench.region}`).length;
  };
  /** As a change leaves it: without a number. */
  const unnumbered = async (table: 'vm' | 'vm_backup', id: string): Promise<void> => {
    await bench.sql(`alter table ${table} disable trigger ${table}_wanted`);
    await bench.sql(`update ${table} set change = null where id = $1`, [id]);
    await bench.sql(`alter table ${table} enable trigger ${table}_wanted`);
  };

  it('a machine: whoever had it locked announces it; what has its number is not announced again', async () => {
    const { id } = await agent.run((await bench.vm()).id);
    await agent.poll();
    expect(await announcedBy('vm', id, 'updated_at = now()')).toBe(0);
    await unnumbered('vm', id);
    expect(await announcedBy('vm', id, 'updated_at = now()')).toBe(1);
    expect((await agent.poll()).items).toMatchObject([{ id }]);
  });

  it('a backup likewise', async () => {
    const { id: vm } = await agent.run((await bench.vm({ backup_count: 1 })).id);
    const { id } = (await bench.api('POST', `vms/${vm}/backups`, { name: 'b' })).body;
    await agent.seeBackup(id);
    expect(await announcedBy('vm_backup', id, 'observed_at = now()')).toBe(0);
    await unnumbered('vm_backup', id);
    expect(await announcedBy('vm_backup', id, 'observed_at = now()')).toBe(1);
    expect((await agent.poll()).items).toMatchObject([{ id }]);
  });
});
