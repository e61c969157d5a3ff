import { most, type Vm } from './region-actor.js';
import { NetworkActor } from './region-networks.js';

/**
 * One account that does things by chance and knows what may be answered. What takes time is known by its intent: where only
 * the region can tell, several answers are right; what was answered once stays true.
 */
export class RegionActor extends NetworkActor {
  /** Does one thing by chance. @throws Error with what was answered and what was expected */
  async step(): Promise<void> {
    const operations: [number, () => Promise<void>][] = [
      [10, () => this.createVm()],
      [3, () => this.readVm()],
      [8, () => this.power()],
      [5, () => this.patchVm()],
      [5, () => this.deleteVm()],
      [5, () => this.createBackup()],
      [2, () => this.deleteBackup()],
      [3, () => this.restoreBackup()],
      [4, () => this.createVpc()],
      [3, () => this.deleteVpc()],
      [4, () => this.orderFip()],
      [5, () => this.attachFip()],
      [4, () => this.detachFip()],
      [3, () => this.releaseFip()],
      [5, () => this.enableNat()],
      [3, () => this.disableNat()],
      [4, () => this.reserveIp()],
      [2, () => this.freeIp()],
      [3, () => this.lists()],
    ];
    let at = this.chance.int(
      1,
      operations.reduce((sum, [weight]) => sum + weight, 0),
    );
    for (const [weight, operation] of operations) {
      at -= weight;
      if (at <= 0) return operation();
    }
  }

  private async createVm(): Promise<void> {
    if (this.living(this.vms).length >= most.vms) return;
    const vpc = this.chance.int(1, 2) === 1 ? this.oneOf(this.vpcs) : undefined;
    const namesake = this.chance.int(1, 8) === 1 ? this.some(this.vms) : undefined;
    const ephemeral = this.chance.int(1, 4) === 1;
    const slots = ephemeral ? 0 : this.chance.int(0, 2);
    const name = namesake?.name ?? `vm ${(this.number += 1)}`;
    const floating_ip = this.chance.int(1, 6) === 1;
    const body = {
      name,
      hostname: 'model',
      image_id: this.catalogue.image,
      vm_plan_id: this.catalogue.plans[0]!.id,
      cluster_id: this.catalogue.region,
      default_user: 'model',
      ...(ephemeral ? { ephemeral } : { period_days: 1, backup_count: slots }),
      interfaces: [{ type: 'vpc', ...(vpc ? { vpc_id: vpc.id } : {}), floating_ip }],
    };
    const taken = namesake ? (namesake.deleted ? ['201', '409 name_taken'] : ['409 name_taken']) : ['201'];
    const allowed = vpc?.deleted ? ['404 not_found'] : taken;
    const path = `/projects/${this.account.project}/vms`;
    const answer = await this.ask('POST', path, body, this.orders(...allowed));
    if (answer.word !== '201') return;
    this.vms.push({
      id: answer.body.id as string,
      name,
      vpc: vpc?.id ?? null,
      ephemeral,
      slots,
      power: 'running',
      made: false,
      deleted: false,
      port: null,
      maybeLost: false,
    });
    await this.readVm(this.vms.at(-1));
  }

  /** What was written is read. */
  private async readVm(vm = this.oneOf(this.vms)): Promise<void> {
    if (!vm) return;
    const wait = !vm.made && !vm.deleted && this.chance.int(1, 2) === 1 ? '?wait=active&timeout=5' : '';
    const answer = await this.ask(
      'GET',
      `/vms/${vm.id}${wait}`,
      undefined,
      vm.deleted ? ['200', '404'] : ['200'],
    );
    if (answer.status === 404) return;
    const { status, name, interfaces } = answer.body as {
      status: string;
      name: string;
      interfaces: { id: string }[];
    };
    if (vm.deleted !== (status === 'deleting'))
      throw new Error(`${vm.id} is ${status}, deleted ${vm.deleted}`);
    if (name !== vm.name) throw new Error(`${vm.id} is named ${name}, not ${vm.name}`);
    if (status === 'error' && !vm.maybeLost) throw new Error(`${vm.id} could not be made: ${answer.text}`);
    if (['active', 'stopped'].includes(status)) {
      vm.made = true;
      vm.port = interfaces[0]?.id ?? null;
    }
  }

  /** What is answered for a machine that may be on its way in or out. */
  private of(vm: Vm, ...made: string[]): string[] {
    if (vm.deleted) return ['404 not_found', '409 vm_deleting'];
    return vm.made ? made : [...made, '409 vm_not_ready'];
  }

  private async power(): Promise<void> {
    const vm = this.oneOf(this.vms);
    if (!vm) return;
    const verb = this.chance.pick(['start', 'stop', 'restart'] as const);
    const allowed = verb === 'restart' && vm.power === 'stopped' ? '409 vm_stopped' : '200';
    const answer = await this.ask('POST', `/vms/${vm.id}/${verb}`, undefined, this.of(vm, allowed));
    if (answer.word !== '200') return;
    vm.made = true;
    vm.power = verb === 'stop' ? 'stopped' : 'running';
  }

  private async patchVm(): Promise<void> {
    const vm = this.oneOf(this.vms);
    if (!vm) return;
    const gone = vm.deleted ? ['404 not_found', '409 vm_deleting'] : [];
    if (this.chance.int(1, 3) === 1) {
      const busy = ['409 vm_restoring', '409 vm_changing', '409 vm_not_ready'];
      const disk_size_gb = this.chance.int(10, 12);
      // What it has already is no change; 422 for less than it has.
      const same = disk_size_gb === 10 ? ['200'] : [];
      const allowed = vm.ephemeral ? ['409 vm_ephemeral', ...same, ...gone] : ['200', ...busy, ...gone];
      await this.ask('PATCH', `/vms/${vm.id}`, { disk_size_gb }, [...allowed, '422']);
      return;
    }
    const name = `vm ${(this.number += 1)}`;
    const answer = await this.ask('PATCH', `/vms/${vm.id}`, { name }, ['200', ...gone]);
    if (answer.word !== '200') return;
    vm.name = name;
    if (answer.body.name !== name) throw new Error(`PATCH answered the name ${answer.body.name}`);
  }

  private async deleteVm(vm = this.oneOf(this.vms)): Promise<void> {
    if (!vm) return;
    const answer = await this.ask(
      'DELETE',
      `/vms/${vm.id}`,
      undefined,
      vm.deleted ? ['202', '404'] : ['202'],
    );
    const first = !vm.deleted;
    vm.deleted = true;
    for (const fip of this.fips) if (fip.on === vm.id) [fip.on, fip.used] = [null, true];
    for (const backup of this.backups) if (backup.vm === vm.id) backup.deleted = true;
    if (first && answer.body.status === 'deleted') await this.ask('GET', `/vms/${vm.id}`, undefined, ['404']);
    else await this.readVm(vm);
  }

  private async createBackup(): Promise<void> {
    const vm = this.oneOf(this.vms);
    if (!vm || this.living(this.backups).length >= most.backups) return;
    const busy = ['409 backup_in_progress', '409 restore_in_progress', '409 no_backup_slot'];
    const used = this.living(this.backups).filter((backup) => backup.vm === vm.id).length;
    const allowed = vm.slots === 0 ? busy : [...(used < vm.slots + 1 ? ['201'] : []), ...busy];
    const body = { name: `backup ${(this.number += 1)}` };
    const answer = await this.ask('POST', `/vms/${vm.id}/backups`, body, this.of(vm, ...allowed));
    if (answer.word !== '201') return;
    this.backups.push({ id: answer.body.id as string, vm: vm.id, deleted: false });
  }

  private async deleteBackup(): Promise<void> {
    const backup = this.oneOf(this.backups);
    if (!backup) return;
    // One that could not be made is forgotten with the next order of a backup.
    const allowed = ['202', '404', '409'];
    const answer = await this.ask('DELETE', `/vms/${backup.vm}/backups/${backup.id}`, undefined, allowed);
    if (answer.word === '202') backup.deleted = true;
  }

  private async restoreBackup(): Promise<void> {
    const backup = this.oneOf(this.backups);
    const vm = this.vms.find(({ id }) => id === backup?.vm);
    if (!backup || !vm) return;
    const allowed = ['202', '404 not_found', '409'];
    const path = `/vms/${vm.id}/backups/${backup.id}/restore`;
    const answer = await this.ask('POST', path, { target: 'vm' }, allowed);
    if (answer.word === '202' && (vm.deleted || backup.deleted))
      throw new Error(`${backup.id} is deleted, and was restored into ${vm.id}`);
  }

  /** What was made is listed; what is listed was made. */
  private async lists(): Promise<void> {
    const names = await this.listed('/vms?limit=200');
    this.same(
      'machines',
      names,
      this.vms.map(({ id, deleted }) => ({ id, gone: deleted })),
    );
    const vpcs = await this.listed('/vpcs?limit=200');
    const own = vpcs.filter(({ name }) => name.startsWith('vpc '));
    this.same(
      'networks',
      own,
      this.vpcs.map(({ id, deleted }) => ({ id, gone: deleted })),
    );
  }

  /** Deletes all that is left: machines and gateways first, then what they used, once nothing of them is left. */
  async deleteAll(settled: () => Promise<void>): Promise<void> {
    for (const fip of this.fips.filter(({ on, released }) => on !== null && !released)) {
      await this.ask('POST', `/floating-ips/${fip.id}/detach`, undefined, ['200']);
      fip.on = null;
    }
    for (const vm of this.living(this.vms)) await this.deleteVm(vm);
    for (const vpc of this.living(this.vpcs)) if (vpc.nat === 'on') await this.disableNat(vpc);
    for (const one of this.living(this.reserved)) await this.freeIp(one);
    await settled();
    for (const fip of this.fips.filter(({ released }) => !released)) await this.releaseFip(fip, true);
    for (const vpc of this.living(this.vpcs)) await this.deleteVpc(vpc, true);
    for (const { id, name } of await this.listed('/vpcs?limit=200'))
      if (!name.startsWith('vpc ')) await this.ask('DELETE', `/vpcs/${id}`, undefined, ['204']);
    for (const { id } of await this.listed('/floating-ips?limit=200'))
      await this.ask('DELETE', `/floating-ips/${id}`, undefined, ['204']);
  }

  /** When nothing is under way any more: all is as it was wanted, and nothing else is there. */
  async settled(): Promise<void> {
    const vms = await this.listed('/vms?limit=200');
    const { total } = (await this.ask('GET', '/vms?limit=1', undefined, ['200'])).body;
    if (total !== vms.length) throw new Error(`${total} machines are counted, ${vms.length} listed`);
    const living = this.living(this.vms);
    this.same(
      'machines',
      vms,
      living.map(({ id }) => ({ id, gone: false })),
    );
    for (const vm of living) {
      const { status, name } = vms.find(({ id }) => id === vm.id)!;
      const wanted = vm.power === 'running' ? 'active' : 'stopped';
      if (status !== wanted && !(vm.maybeLost && !vm.made && status === 'error'))
        throw new Error(`machine ${vm.id} is ${status}, it should be ${wanted}`);
      if (name !== vm.name) throw new Error(`machine ${vm.id} is named ${name}, not ${vm.name}`);
    }
    const vpcs = (await this.listed('/vpcs?limit=200')).filter(({ name }) => name.startsWith('vpc '));
    this.same(
      'networks',
      vpcs,
      this.living(this.vpcs).map(({ id }) => ({ id, gone: false })),
    );
    const fips = await this.listed('/floating-ips?limit=200');
    const ids = new Set(fips.map(({ id }) => id));
    for (const fip of this.fips)
      if (ids.has(fip.id) === fip.released)
        throw new Error(`floating IP ${fip.id}: released ${fip.released}`);
  }
}
