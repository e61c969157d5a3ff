/** Machines by COPY: what one that was really made has in every table, with other ids. */
import { join } from 'node:path';

/** Machines in one VPC. */
const each = 100;

/**
 * Gives an account so many machines, all running, with their interfaces, ports, VPCs and lives, and tells the agent's record.
 * @param lane sql, account, agent
 * @param {number} net second byte of the subnets 10.<net>.<n>.0/24 and on
 */
export async function fillVms(lane, account, count, net) {
  const template = await lane.template(account, `10.${net}.0.0/24`);
  const { sql } = lane;
  const prefix = `${account.account_id}-${net}`;
  await sql.query('create temp table if not exists filled (n int, vm uuid, port uuid, vpc uuid, tag text)');
  await sql.query('truncate filled');
  // One machine is the template itself.
  await sql.query(
    `insert into filled select n, gen_random_uuid(), gen_random_uuid(),
       md5($2 || '-' || (n / $3::int))::uuid, $2 from generate_series(1, $1::int) n`,
    [count - 1, prefix, each],
  );
  await sql.query('create index on filled (n)').catch(() => undefined);
  const scratch = lane.scratch();
  try {
    const { vmId, portId, vpcId } = template;
    const copies = [
      copy('networking.vpc', `id = '${vpcId}'`, vpcsOf(), {
        id: 'f.vpc',
        name: `'filled ' || f.number`,
        name_key: `'filled ' || f.number`,
        subnet: `host(inet '10.${net}.0.0' + (f.number + 1) * 256) || '/24'`,
      }),
      copy('networking.lifecycle', `id = '${vpcId}'`, vpcsOf(), { id: 'f.vpc' }),
      copy('networking.port', `id = '${portId}'`, 'filled f', {
        id: 'f.port',
        vpc_id: 'f.vpc',
        owner: `'vm:' || f.vm`,
        address: `host(inet '10.${net}.0.2' + (f.n / ${each} + 1) * 256 + f.n % ${each})`,
        mac: `'06' || regexp_replace(lpad(to_hex(f.n), 10, '0'), '(..)', ':\\1', 'g')`,
        created_at: 'now() - make_interval(secs => 1000000 - f.n)',
      }),
      copy('compute.vm', `id = '${vmId}'`, 'filled f', {
        id: 'f.vm',
        name: `'filled ' || f.n`,
        name_key: `'filled ' || f.n`,
        created_at: 'now() - make_interval(secs => 1000000 - f.n)',
        paid_until: `now() + interval '20 days'`,
      }),
      copy('compute.vm_interface', `id = '${portId}'`, 'filled f', {
        id: 'f.port',
        vm_id: 'f.vm',
        vpc_id: 'f.vpc',
        wanted_vpc_id: 'f.vpc',
        address: `host(inet '10.${net}.0.2' + (f.n / ${each} + 1) * 256 + f.n % ${each})`,
        mac: `'06' || regexp_replace(lpad(to_hex(f.n), 10, '0'), '(..)', ':\\1', 'g')`,
      }),
      copy('compute.lifecycle', `id = '${vmId}' and kind = 'vm'`, 'filled f', { id: 'f.vm' }),
      copy('compute.lifecycle', `id = '${vmId}' and kind = 'vm_period'`, 'filled f', {
        id: 'f.vm',
        run_at: `now() + interval '20 days'`,
      }),
    ];
    // Triggers and foreign keys are for rows that come one by one.
    await sql.query('set session_replication_role = replica');
    for (const [index, { table, columns, query }] of copies.entries()) {
      const file = join(scratch.folder, `${index}`);
      const names = await columns(sql);
      await sql.query(`copy (${query(names)}) to '${file}' (format binary)`);
      await sql.query(`copy ${table} (${names.join(', ')}) from '${file}' (format binary)`);
    }
    await sql.query('reset session_replication_role');
    await sum(sql);
    await sql.query('vacuum analyze');
    await sql.query('checkpoint');
    const { rows } = await sql.query('select vm from filled');
    await lane.remember(
      vmId,
      rows.map(({ vm }) => vm),
    );
  } finally {
    scratch.remove();
  }
}

const vpcsOf = () => `(select vpc, n / ${each} as number from filled group by 1, 2) f`;

/** What triggers would have summed up. */
async function sum(sql) {
  await sql.query(`insert into compute.vm_count (account_id, project_id, machines)
     select account_id, project_id, count(*) from compute.vm where not unlisted group by 1, 2
     on conflict (account_id, project_id) do update set machines = excluded.machines`);
  await sql.query(`update compute.region_use u set vcpu = s.vcpu, memory_mb = s.memory_mb, disk_gb = s.disk_gb,
     machines = s.machines from (select region_id, sum(vcpu) as vcpu, sum(memory_mb) as memory_mb, sum(disk_gb) as disk_gb,
       count(*) as machines from compute.vm where placed group by region_id) s where s.region_id = u.region_id`);
}

/** Rows like one of a table, with some columns made anew of `f`. */
function copy(table, one, from, changed) {
  const pairs = Object.entries(changed).map(([column, value]) => `'${column}', ${value}`);
  return {
    table,
    columns: async (sql) => {
      const [schema, name] = table.split('.');
      const { rows } = await sql.query(
        `select column_name from information_schema.columns
         where table_schema = $1 and table_name = $2 and is_generated = 'NEVER' order by ordinal_position`,
        [schema, name],
      );
      return rows.map(({ column_name }) => `"${column_name}"`);
    },
    query: (names) =>
      `select ${names.map((name) => `made.${name}`).join(', ')} from ${from}
       cross join (select * from ${table} where ${one}) t
       cross join lateral jsonb_populate_record(null::${table}, to_jsonb(t) || jsonb_build_object(${pairs.join(', ')})) made`,
  };
}
