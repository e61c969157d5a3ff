/** One installation in the split form whose account has a number of machines. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { Pool } from 'undici';
import { cpuOf, descendants } from '../inference/parts.mjs';
import { startSplit } from '../src/split.mjs';
import { fillVms } from './fill.mjs';

const services = ['compute', 'networking', 'identity-billing', 'api-gateway', 'region-agent'];
const ticks = Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }));

export class Lane {
  /**
   * Starts an installation with simulated machines and networks.
   * @param {number} existing machines of the account, all running
   */
  static async start(existing) {
    const split = await startSplit({
      env: { NEBO_DRIVERS: 'machines=simulated,networks=simulated' },
      only: ['compute', 'networking'],
    });
    const lane = new Lane(split, existing);
    try {
      await lane.begin();
      return lane;
    } catch (error) {
      await lane.end();
      throw error;
    }
  }

  constructor(split, existing) {
    this.split = split;
    this.existing = existing;
    this.name = `${existing.toLocaleString('en')} machines`;
    this.api = new Pool(new URL(split.baseUrl).origin, { connections: 256, pipelining: 1 });
    const postmaster = readFileSync(join(split.home, 'postgres/postmaster.pid'), 'utf8');
    this.postmaster = Number(postmaster.split('\n')[0]);
  }

  async begin() {
    const [account] = this.split.credentials.accounts;
    this.account = account;
    this.sql = new pg.Client({ connectionString: this.split.env.DATABASE_URL });
    await this.sql.connect();
    const [region] = (await this.call('GET', '/regions')).body.data;
    this.regionId = region.id;
    const [plan] = (await this.call('GET', '/vm-plans')).body.data;
    const path = `/projects/${account.project_id}/images?cluster_id=${region.id}`;
    const [image] = (await this.call('GET', path)).body.images;
    this.order = {
      hostname: 'bench',
      image_id: image.id,
      vm_plan_id: plan.id,
      cluster_id: region.id,
      default_user: 'bench',
      period_days: 1,
      auto_renew: false,
    };
    await fillVms(this, account, this.existing, 16);
  }

  /** An answer of the API. @throws Error for anything but success */
  async call(method, path, body, key = this.account?.api_key ?? this.split.key) {
    const { statusCode, body: stream } = await this.api.request({
      method,
      path: `/v1${path}`,
      headers: { authorization: `Bearer ${key}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const text = await stream.text();
    if (statusCode >= 300) throw new Error(`${method} ${path}: ${statusCode} ${text}`);
    return { status: statusCode, body: text === '' ? null : JSON.parse(text), bytes: text.length };
  }

  /** A machine that runs, in a VPC of its own. */
  async template(account, subnet) {
    const vpc = await this.vpc(account, 'template', subnet);
    const { id } = (
      await this.call(
        'POST',
        `/projects/${account.project_id}/vms`,
        { ...this.order, name: 'template', interfaces: [{ type: 'vpc', vpc_id: vpc }] },
        account.api_key,
      )
    ).body;
    const vm = (await this.call('GET', `/vms/${id}?wait=active&timeout=60`, undefined, account.api_key)).body;
    if (vm.status !== 'active') throw new Error(`the template machine is ${vm.status}: ${vm.status_reason}`);
    return { vmId: id, portId: vm.interfaces[0].id, vpcId: vpc };
  }

  /** @returns its id */
  async vpc(account, name, subnet) {
    const body = { name, cluster_id: this.regionId, subnet };
    return (await this.call('POST', '/vpcs', body, account.api_key)).body.id;
  }

  /** Folder that PostgreSQL may write to and read from. */
  scratch() {
    const folder = mkdtempSync(join(tmpdir(), 'nebo-bench-copy-'));
    chmodSync(folder, 0o777);
    return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
  }

  /** Writes records of machines where the stopped agent keeps them, and lets it begin again. */
  async remember(vmId, ids) {
    const agent = this.split.parts['region-agent'];
    await agent.stop();
    const file = join(this.split.home, 'agent/region-agent/machines/machines.log');
    const record = readFileSync(file, 'utf8')
      .split('\n')
      .filter((line) => line.includes(vmId))
      .at(-1);
    for (let from = 0; from < ids.length; from += 10_000)
      appendFileSync(
        file,
        ids
          .slice(from, from + 10_000)
          .map((id) => `\n${record.replace(vmId, id)}`)
          .join(''),
      );
    agent.up();
  }

  /**
   * CPU seconds since the start, by part; `PostgreSQL of compute` are the server processes of that service's connections,
   * `PostgreSQL` is all of it.
   */
  cpu() {
    const used = {};
    for (const name of services) used[name] = cpuOf([this.split.parts[name].child.pid]);
    const database = descendants(this.postmaster);
    used['PostgreSQL'] = cpuOf([this.postmaster, ...database]) + reaped(this.postmaster);
    for (const name of services.slice(0, 3)) {
      const role = `postgres: nebo_${name.replaceAll('-', '_')} `;
      used[`PostgreSQL of ${name}`] = cpuOf(database.filter((pid) => titleOf(pid).startsWith(role)));
    }
    return used;
  }

  async end() {
    await this.sql?.end().catch(() => undefined);
    await this.api.destroy();
    await this.split.stop();
  }
}

/** CPU seconds of children that a process has seen end. */
function reaped(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[13]) + Number(fields[14])) / ticks;
}

function titleOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}
