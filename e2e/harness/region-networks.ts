import { Actor, type Fip, most } from './region-actor.js';

/** What an account does with networks and addresses. */
export class NetworkActor extends Actor {
  protected async createVpc(): Promise<void> {
    if (this.living(this.vpcs).length >= most.vpcs) return;
    const subnet = `172.${this.chance.int(16, 19)}.${this.chance.int(0, 2)}.0/24`;
    const name = `vpc ${(this.number += 1)}`;
    const same = this.vpcs.filter((vpc) => vpc.subnet === subnet);
    const overlap = ['409 subnet_overlap', '409 subnet_overlaps', '409'];
    const allowed = same.some(({ deleted }) => !deleted)
      ? overlap
      : same.length > 0
        ? ['201', ...overlap]
        : ['201'];
    const body = { name, subnet, cluster_id: this.catalogue.region };
    const answer = await this.ask('POST', '/vpcs', body, allowed);
    if (answer.word !== '201') return;
    this.vpcs.push({ id: answer.body.id as string, name, subnet, nat: 'none', deleted: false });
    await this.ask('GET', `/vpcs/${answer.body.id}`, undefined, ['200']);
  }

  protected async deleteVpc(vpc = this.oneOf(this.vpcs), final = false): Promise<void> {
    if (!vpc) return;
    const inside = this.vms.filter((vm) => vm.vpc === vpc.id);
    const held =
      inside.some((vm) => vm.made && !vm.deleted) ||
      vpc.nat === 'on' ||
      this.reserved.some((one) => one.vpc === vpc.id && !one.deleted);
    const wasUsed =
      inside.length > 0 || vpc.nat === 'going' || this.reserved.some((one) => one.vpc === vpc.id);
    const inUse = '409 vpc_in_use';
    const free = wasUsed && !final ? ['204', inUse] : ['204'];
    const allowed = vpc.deleted ? ['404 not_found', '204'] : held ? [inUse] : free;
    const answer = await this.ask('DELETE', `/vpcs/${vpc.id}`, undefined, allowed);
    if (answer.word !== '204') return;
    vpc.deleted = true;
    for (const vm of inside) if (!vm.made && !vm.deleted) vm.maybeLost = true;
  }

  protected async orderFip(): Promise<void> {
    if (this.fips.filter(({ released }) => !released).length >= most.fips) return;
    const body = { cluster_id: this.catalogue.region };
    const answer = await this.ask('POST', '/floating-ips', body, this.orders('201'));
    if (answer.word !== '201') return;
    this.fips.push({ id: answer.body.id as string, on: null, used: false, released: false });
    await this.ask('GET', `/floating-ips/${answer.body.id}`, undefined, ['200']);
  }

  protected fip(): Fip | undefined {
    const held = this.fips.filter(({ released }) => !released);
    return this.some(this.chance.int(1, 12) === 1 || held.length === 0 ? this.fips : held);
  }

  protected async attachFip(): Promise<void> {
    const [fip, vm] = [this.fip(), this.some(this.vms.filter(({ port }) => port !== null))];
    if (!fip || !vm) return;
    const busy = '409 floating_ip_not_available';
    const full = '409 interface_has_floating_ip';
    // Its own one of the order, one that was attached before, or one that is still on its way.
    const possible = fip.on !== null ? [busy] : fip.used ? ['200', busy, full] : ['200', full];
    const allowed = fip.released ? ['404 not_found'] : vm.deleted ? ['404 not_found', ...possible] : possible;
    const answer = await this.ask(
      'POST',
      `/floating-ips/${fip.id}/attach`,
      { vm_interface_id: vm.port },
      allowed,
    );
    if (answer.word !== '200' || vm.deleted) {
      if (answer.word === '200') fip.used = true;
      return;
    }
    [fip.on, fip.used] = [vm.id, true];
  }

  protected async detachFip(): Promise<void> {
    const fip = this.fip();
    if (!fip) return;
    const allowed = fip.released ? ['404 not_found'] : ['200'];
    const answer = await this.ask('POST', `/floating-ips/${fip.id}/detach`, undefined, allowed);
    if (answer.word === '200') fip.on = null;
  }

  protected async releaseFip(fip = this.fip(), final = false): Promise<void> {
    if (!fip) return;
    const attached = '409 floating_ip_attached';
    const free = fip.used && !final ? ['204', attached] : ['204'];
    const allowed = fip.released ? ['404 not_found', '204'] : fip.on !== null ? [attached] : free;
    const answer = await this.ask('DELETE', `/floating-ips/${fip.id}`, undefined, allowed);
    if (answer.word !== '204') return;
    fip.released = true;
    await this.ask('GET', `/floating-ips/${fip.id}`, undefined, ['404']);
  }

  protected async enableNat(): Promise<void> {
    const vpc = this.oneOf(this.vpcs);
    if (!vpc) return;
    const exists = '409 nat_gateway_exists';
    const early = '409 vpc_not_active';
    const free = vpc.nat === 'going' ? ['201', exists, early] : ['201', early];
    const allowed = vpc.deleted ? ['404 not_found'] : vpc.nat === 'on' ? [exists] : this.orders(...free);
    const answer = await this.ask('POST', `/vpcs/${vpc.id}/nat-gateway`, {}, allowed);
    if (answer.word === '201') vpc.nat = 'on';
  }

  protected async disableNat(vpc = this.oneOf(this.vpcs)): Promise<void> {
    if (!vpc) return;
    const allowed =
      vpc.nat === 'on' && !vpc.deleted ? ['202'] : vpc.nat === 'going' ? ['202', '404'] : ['404'];
    const answer = await this.ask('DELETE', `/vpcs/${vpc.id}/nat-gateway`, undefined, allowed);
    if (answer.word === '202') vpc.nat = 'going';
  }

  protected async reserveIp(): Promise<void> {
    const vpc = this.oneOf(this.vpcs);
    if (!vpc || this.living(this.reserved).length >= most.reserved) return;
    const inside = this.chance.int(1, 8) > 1;
    const net = inside ? vpc.subnet.split('.').slice(0, 3).join('.') : '10.99.0';
    const address = `${net}.${this.chance.int(200, 206)}`;
    const mac = `02:00:00:00:00:0${this.chance.int(1, 6)}`;
    const clash = this.reserved.filter(
      (one) => one.vpc === vpc.id && (one.address === address || one.mac === mac),
    );
    const inUse = ['409 address_in_use', '409 mac_in_use'];
    const free = clash.some(({ deleted }) => !deleted)
      ? inUse
      : clash.length > 0
        ? ['201', ...inUse]
        : ['201'];
    const allowed = vpc.deleted ? ['404 not_found'] : inside ? free : ['400'];
    const body = { name: `address ${(this.number += 1)}`, address, mac };
    const answer = await this.ask('POST', `/vpcs/${vpc.id}/reserved-ips`, body, allowed);
    if (answer.word !== '201') return;
    this.reserved.push({ id: answer.body.id as string, vpc: vpc.id, address, mac, deleted: false });
  }

  protected async freeIp(one = this.oneOf(this.reserved)): Promise<void> {
    if (!one) return;
    const allowed = one.deleted ? ['404', '204'] : ['204'];
    await this.ask('DELETE', `/vpcs/${one.vpc}/reserved-ips/${one.id}`, undefined, allowed);
    one.deleted = true;
  }
}
