import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cacheFolder } from '@nebo/test-kit';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { nothingLost } from '../harness/audit.js';
import { Nebo, root, run, until } from '../harness/nebo.js';

/**
 * Only as a proof (`npm run proof -- cloud-image`): the image takes two minutes to make, and a whole system several to boot
 * without a processor's help. `npm test` boots the tiny image (apps/region-agent/test/machines-local.spec.ts).
 */
const restarts = Number(process.env['NEBO_PROOF'] || 0);
/** A boot where nothing helps, on a machine that does other things. */
const bootMs = 900_000;
const image = join(cacheFolder(), 'cloud-image', 'debian.qcow2');
/** What the region's agent brings itself; its probe for KVM boots it. */
const tiny = join(cacheFolder(), 'tiny-image');
const contract = new ContractCheck(readContract('v1'));

/**
 * A machine of a real system from the public door: the operator makes and offers the image, firmware and GRUB boot it,
 * cloud-init reads its seed, the guest agent that Debian ships answers, and its user logs in over a floating IP.
 */
(restarts > 0 ? describe : describe.skip)('a machine of a whole Debian, booted by firmware', () => {
  let nebo: Nebo;
  let api: Api;
  let vm: { id: string; address: string };
  const scratch = mkdtempSync(join(tmpdir(), 'nebo-cloud-image-'));
  const key = join(scratch, 'key');

  const reach = async (path: string, status: string, ms = bootMs) => {
    let last: Record<string, unknown> = {};
    await until(async () => {
      last = (await api.get(`${path}?wait=${status}&timeout=20`)).body;
      if (last['status'] === 'error') throw new Error(JSON.stringify(last));
      return last['status'] === status;
    }, ms);
    return last;
  };
  const gone = (path: string) => until(async () => (await api.get(path)).status === 404, 120_000);
  const ssh = (...words: string[]) =>
    run('ssh', [
      ...['-i', key, '-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10', '-o', 'StrictHostKeyChecking=no'],
      ...['-o', `UserKnownHostsFile=${join(scratch, 'hosts')}`, '-o', 'LogLevel=ERROR'],
      ...[`someone@${vm.address}`, ...words],
    ]);
  /** What a command of its user prints, once somebody can log in. */
  const says = async (...words: string[]) => {
    let text = '';
    await until(
      async () => {
        const { code, stdout } = await ssh(...words);
        text = stdout.trim();
        return code === 0;
      },
      bootMs,
      1_000,
    );
    return text;
  };
  const connected = () =>
    until(async () => (await api.get(`/vms/${vm.id}`)).body.guest_agent_state === 'connected', bootMs, 1_000);

  beforeAll(async () => {
    const make = async (tool: string, out: string) => {
      const { code, stderr } = await run(process.execPath, [join(root, 'tools', tool), '--out', out]);
      if (code !== 0) throw new Error(stderr);
    };
    await make('tiny-image/build.mjs', tiny);
    if (!existsSync(image)) await make('cloud-image/build.mjs', image);
    expect(await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', key])).toMatchObject({ code: 0 });
    nebo = await Nebo.start({
      NEBO_DRIVERS: 'machines=local,networks=local,builds=simulated,replicas=simulated',
      NEBO_IMAGES: tiny,
      NEBO_UPLINK: 'host',
      NEBO_FLOATING_RANGE: '198.51.100.0/28',
    });
    const [demo] = nebo.credentials.accounts;
    api = new Api(nebo.credentials.base_url, demo!.api_key, contract);
  }, 1_200_000);
  afterAll(async () => {
    await nebo?.dispose();
    rmSync(scratch, { recursive: true, force: true });
  }, 120_000);

  it(
    'is offered, boots, takes its seed, is logged in to, backed up, stopped, restarted and removed',
    async () => {
      await nebo.admin('image', 'add', '--slug', 'debian', '--version', '12', '--file', image);
      const { project_id: project } = nebo.credentials.accounts[0]!;
      const [region] = (await api.get('/regions')).body.data;
      const { families } = (await api.get(`/projects/${project}/images?cluster_id=${region.id}`)).body;
      const debian = families.find(({ slug }: { slug: string }) => slug === 'debian').versions[0];
      const plans = (await api.get('/vm-plans')).body.data;
      const { body: sshKey } = await api.post('/ssh-keys', {
        name: 'laptop',
        public_key: readFileSync(`${key}.pub`, 'utf8').trim(),
      });
      const created = await api.post(`/projects/${project}/vms`, {
        name: 'front',
        hostname: 'front',
        default_user: 'someone',
        image_id: debian.by_cluster[region.id],
        vm_plan_id: plans[0].id,
        cluster_id: region.id,
        period_days: 3,
        backup_count: 1,
        ssh_key_ids: [sshKey.id],
        // The image has it: nothing is to be fetched.
        install_guest_agent: false,
        interfaces: [{ type: 'vpc', floating_ip: true }],
        cloud_init: '#!/bin/sh\necho first boot >>/var/tmp/user-data\n',
      });
      expect(created).toMatchObject({ status: 201, body: { name: 'front' } });
      const active = await reach(`/vms/${created.body.id}`, 'active');
      expect(active).toMatchObject({ simulated: false, status_reason: null });
      vm = {
        id: created.body.id,
        address: (active as { floating_ips: { address: string }[] }).floating_ips[0]!.address,
      };
      const own = (active as { interfaces: { ipv4_addresses: string[] }[] }).interfaces[0]!.ipv4_addresses[0];

      // cloud-init: name, user with the key and no password, addresses by DHCP, the user's script, the grown disk.
      expect(await says('hostname')).toBe('front');
      await says('cloud-init', 'status', '--wait');
      expect(await says('cat', '/var/tmp/user-data')).toBe('first boot');
      expect(await says('ip', '-4', '-br', 'address')).toContain(`${own}/`);
      expect(await says('sudo', 'id', '-u')).toBe('0');
      const [disk, root] = (await says('lsblk', '-bnro', 'SIZE', '/dev/vda')).split('\n').map(Number) as [
        number,
        ...number[],
      ];
      expect(disk).toBe((active as { disk_size: number }).disk_size * 1024 ** 3);
      expect(root).toBeGreaterThan(0);
      const size = Number((await says('df', '-B1', '--output=size', '/')).split('\n').at(-1));
      expect(size).toBeGreaterThan(disk * 0.9);

      // The guest agent that Debian ships: it is seen, and holds the file system for a backup.
      await connected();
      const backups = `/projects/${project}/vms/${vm.id}/backups`;
      const backup = await api.post(backups, { name: 'fresh' });
      expect(backup.status).toBe(201);
      const ready = await reach(`/vms/${vm.id}/backups/${backup.body.id}`, 'ready');
      expect(ready).toMatchObject({ consistency: 'frozen', simulated: false });

      let boot = await says('cat', '/proc/sys/kernel/random/boot_id');
      for (let round = 0; round < restarts; round += 1) {
        // A stop lets the system end by itself: nothing of the journal says that the power went.
        await says('sudo', 'sh', '-c', `'echo ${round} >/var/tmp/round; sync'`);
        expect((await api.post(`/vms/${vm.id}/stop`)).status).toBe(200);
        await reach(`/vms/${vm.id}`, 'stopped');
        expect((await api.post(`/vms/${vm.id}/start`)).status).toBe(200);
        await reach(`/vms/${vm.id}`, 'active');
        const next = await says('cat', '/proc/sys/kernel/random/boot_id');
        expect(next).not.toBe(boot);
        boot = next;
        expect(await says('cat', '/var/tmp/round')).toBe(String(round));
        expect(await says('cat', '/var/tmp/user-data')).toBe('first boot');
        expect(await says('sudo', 'journalctl', '-b', '-1', '-o', 'cat', '-n', '200')).toMatch(
          /Reached target .*(Power Off|Shutdown)|Journal stopped/,
        );
      }

      expect((await api.delete(`/vms/${vm.id}`)).status).toBeLessThan(300);
      await gone(`/vms/${vm.id}`);
      await nothingLost(nebo);
    },
    6 * bootMs,
  );
});
