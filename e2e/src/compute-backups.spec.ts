import { createHash, randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { nothingLost } from '../harness/audit.js';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, type Installation } from '../harness/forms.js';
import { until } from '../harness/nebo.js';

const contract = new ContractCheck(readContract('v1'));

/** A qcow2 file of an empty disk, as far as its header goes. */
function qcow2(gb: number): Buffer {
  const file = Buffer.alloc(65_536);
  file.write('QFI\xfb', 'latin1');
  file.writeUInt32BE(3, 4);
  file.writeUInt32BE(16, 20);
  file.writeBigUInt64BE(BigInt(gb) * 1024n ** 3n, 24);
  file.writeUInt32BE(4, 96);
  file.writeUInt32BE(104, 100);
  file.write(randomUUID(), 4_096);
  return file;
}

/** Backups, restores and images from the public door to the region's agent and back; the region only simulates machines. */
describe.each(forms)('$form', ({ missing, start }) => {
  (missing ? describe.skip : describe)(
    'backups and images (the split form is skipped without nats-server)',
    () => {
      let nebo: Installation;
      let api: Api;
      let project: string;
      let order: Record<string, unknown>;
      const scratch = mkdtempSync(join(tmpdir(), 'nebo-images-'));

      beforeAll(async () => {
        nebo = await start({ NEBO_DRIVERS: 'machines=simulated,networks=simulated' });
        api = new Api(nebo.baseUrl, nebo.key, contract);
        project = (await api.get('/projects')).body.data[0].id;
        const [region] = (await api.get('/regions')).body.data;
        const [plan] = (await api.get('/vm-plans')).body.data;
        const { images } = (await api.get(`/projects/${project}/images?cluster_id=${region.id}`)).body;
        order = {
          hostname: 'web',
          image_id: images[0].id,
          vm_plan_id: plan.id,
          cluster_id: region.id,
          default_user: 'me',
          period_days: 3,
          backup_count: 2,
        };
      }, 120_000);
      afterAll(async () => {
        await nebo?.stop();
        rmSync(scratch, { recursive: true, force: true });
      });

      const reach = async (path: string, status: string) => {
        await until(
          async () => (await api.get(`${path}?wait=${status}&timeout=20`)).body.status === status,
          60_000,
        );
        return (await api.get(path)).body;
      };
      const machine = async (more: Record<string, unknown> = {}) => {
        const created = await api.post(`/projects/${project}/vms`, { ...order, name: randomUUID(), ...more });
        expect(created.status).toBe(201);
        return reach(`/vms/${created.body.id}`, 'active');
      };
      const gone = (path: string) => until(async () => (await api.get(path)).status === 404, 60_000);

      it('a backup is made, restored into its machine and into a new one, and deleted', async () => {
        const vm = await machine();
        const backups = `/projects/${project}/vms/${vm.id}/backups`;
        const made = await api.post(backups, { name: 'before', description: 'the update' });
        expect(made).toMatchObject({ status: 201, body: { status: 'pending', vm_id: vm.id } });
        const path = `/vms/${vm.id}/backups/${made.body.id}`;
        expect(await reach(path, 'ready')).toMatchObject({
          name: 'before',
          type: 'manual',
          error: null,
          consistency: 'crash',
          simulated: true,
          size_bytes: expect.any(Number),
        });
        expect((await api.get(backups)).body).toMatchObject({ total: 1, data: [{ id: made.body.id }] });

        expect(await api.post(`${path}/restore`, { target: 'vm' })).toMatchObject({
          status: 202,
          body: { id: vm.id, status: 'restoring' },
        });
        await reach(`/vms/${vm.id}`, 'active');

        expect((await api.post(`/vms/${vm.id}/stop`)).status).toBe(200);
        await reach(`/vms/${vm.id}`, 'stopped');
        expect((await api.post(`${path}/restore`, { target: 'vm' })).body.status).toBe('restoring');
        await reach(`/vms/${vm.id}`, 'stopped');

        const copy = await api.post(`/projects/${project}${path}/restore`, {
          target: 'new',
          vm: { name: `copy ${randomUUID()}`, hostname: 'copy', period_days: 1 },
        });
        expect(copy).toMatchObject({ status: 202, body: { hostname: 'copy', project_id: project } });
        await reach(`/vms/${copy.body.id}`, 'active');

        expect(await api.delete(path)).toMatchObject({ status: 202, body: { status: 'deleted' } });
        expect((await api.get(path)).status).toBe(404);
        for (const id of [vm.id, copy.body.id]) expect((await api.delete(`/vms/${id}`)).status).toBe(202);
        for (const id of [vm.id, copy.body.id]) await gone(`/vms/${id}`);
      });

      it('slots: 409 when they are taken; a machine takes its backups with it', async () => {
        const vm = await machine({ backup_count: 1 });
        const made = (await api.post(`/vms/${vm.id}/backups`, { name: 'a' })).body;
        await reach(`/vms/${vm.id}/backups/${made.id}`, 'ready');
        expect(await api.post(`/vms/${vm.id}/backups`, { name: 'b' })).toMatchObject({
          status: 409,
          body: { error: { code: 'no_backup_slot' } },
        });
        await api.delete(`/vms/${vm.id}`);
        await gone(`/vms/${vm.id}/backups/${made.id}`);
        await gone(`/vms/${vm.id}`);
      });

      it('a key that may only read sees backups and changes none', async () => {
        const vm = await machine();
        const policy = JSON.stringify([{ effect: 'allow', actions: ['vm:read'], resources: ['*'] }]);
        const { key } = await nebo.admin('key', 'create', '--account', nebo.account, '--policy', policy);
        const reader = api.as(key);
        const path = `/vms/${vm.id}/backups`;
        expect((await reader.get(path)).body.total).toBe(0);
        for (const refused of [
          await reader.post(path, { name: 'x' }),
          await reader.delete(`${path}/${randomUUID()}`),
          await reader.post(`${path}/${randomUUID()}/restore`, { target: 'vm' }),
        ])
          expect(refused).toMatchObject({ status: 403, body: { error: { code: 'forbidden' } } });
        await api.delete(`/vms/${vm.id}`);
        await gone(`/vms/${vm.id}`);
      });

      it('an operator adds an image by file and by address, a machine is made of it, and it is withdrawn', async () => {
        const file = join(scratch, 'debian.qcow2');
        const bytes = qcow2(12);
        writeFileSync(file, bytes);
        const add = (...words: string[]) =>
          nebo.admin('image', 'add', '--slug', 'debian', '--version', '12', ...words);
        const sha256 = createHash('sha256').update(bytes).digest('hex');
        const image = await add('--file', file, '--name', 'Debian 12', '--sha256', sha256);
        expect(image).toMatchObject({ slug: 'debian', min_disk_gb: 12, sha256, bytes: bytes.length });
        const listed = async () =>
          (
            await api.get(`/projects/${project}/images?cluster_id=${String(order['cluster_id'])}`)
          ).body.images.map(({ id }: { id: string }) => id);
        expect(await listed()).toContain(image.id);
        const body = { ...order, name: randomUUID(), image_id: image.id };
        expect((await api.post(`/projects/${project}/vms`, body)).status).toBe(422);
        const vm = await machine({ image_id: image.id, disk_size_gb: 12 });

        const server = createServer((_request, response) => response.end(qcow2(1)));
        await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
        const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/cloud.img`;
        const fetched = await add('--url', url).finally(() => server.close());
        expect(fetched).toMatchObject({ name: 'debian 12', min_disk_gb: 1 });

        await nebo.admin('image', 'withdraw', '--image', image.id);
        expect(await listed()).not.toContain(image.id);
        expect((await nebo.admin('image', 'list')).data.map(({ id }: { id: string }) => id)).toContain(
          image.id,
        );
        writeFileSync(file, 'not a disk');
        await expect(add('--file', file)).rejects.toThrow('neither a qcow2 file');
        await expect(add('--file', file, '--sha256', sha256)).rejects.toThrow('another hash');
        await expect(add('--file', join(scratch, 'absent'))).rejects.toThrow('is not there');
        await expect(add()).rejects.toThrow('either --file or --url');
        expect((await api.get(`/vms/${vm.id}`)).body.status).toBe('active');
        await api.delete(`/vms/${vm.id}`);
        await gone(`/vms/${vm.id}`);
      });

      it('nothing is lost or left over, says the audit', () => nothingLost(nebo), 90_000);
    },
  );
});
