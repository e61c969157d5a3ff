import { IdField, RecordField, StrField, BoolField } from '../fields.js';

/** States of a VPC that clients wait for; `error` says why in `status_reason`. */
export const vpcStatuses = ['pending', 'active', 'error', 'deleting'] as const;

/** States of a NAT gateway; clients take any other word for an error. */
export const natGatewayStatuses = ['attaching', 'attached', 'detaching', 'error'] as const;

/** A floating IP that a VPC itself holds: source NAT for its whole subnet. */
export class V1NatGateway {
  @BoolField({ description: 'What its owner wants; the status says what the region has made of it' })
  enabled!: boolean;
  @StrField()
  fip_id!: string;
  @StrField()
  address!: string;
  @StrField({ description: `One of ${natGatewayStatuses.join(', ')}` })
  status!: string;
  @StrField({ nullable: true, optional: true })
  last_error!: string | null;
}

/** A private network. */
export class V1Vpc {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @StrField({ description: 'Address range in CIDR form', example: '10.20.0.0/16' })
  subnet!: string;
  @StrField({ description: 'Region' })
  cluster_id!: string;
  @BoolField({ default: false, description: 'The account’s own VPC of that region, made on first use' })
  is_default!: boolean;
  @RecordField(() => V1NatGateway, { nullable: true, optional: true })
  nat_gateway!: V1NatGateway | null;
  @StrField({ nullable: true, optional: true })
  ovn_name!: string | null;
  @StrField({ nullable: true, optional: true, description: `One of ${vpcStatuses.join(', ')}` })
  status!: string | null;
  @StrField({ nullable: true, optional: true, description: 'Why the status is what it is, when it is bad' })
  status_reason!: string | null;
}

const cidrRule = 'must be an IPv4 range in CIDR form whose host bits are zero, like 10.20.0.0/16';

/** Body to create a VPC. */
export class V1VpcCreate {
  @StrField({ min: 1, max: 255 })
  name!: string;
  @StrField({
    format: 'ipv4network',
    max: 18,
    description: 'Private, /16 to /28, outside of 10.0.0.0/12',
    example: '10.20.0.0/16',
    pattern: /^\d{1,3}(\.\d{1,3}){3}\/\d{1,2}$/,
    rule: cidrRule,
  })
  subnet!: string;
  @IdField({ description: 'Region' })
  cluster_id!: string;
}

/** Body to rename a VPC. */
export class V1VpcUpdate {
  @StrField({ optional: true, min: 1, max: 255 })
  name?: string;
}

/** Body to enable a NAT gateway; without it an address is ordered. */
export class V1NatGatewayEnable {
  @IdField({
    nullable: true,
    optional: true,
    description: 'An available floating IP of the region; it is released together with the gateway',
  })
  fip_id?: string | null;
}

/** An address of a VPC that is bound to a MAC. */
export class V1ReservedIp {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @StrField()
  address!: string;
  @StrField()
  mac!: string;
  @StrField({ nullable: true, optional: true })
  created_at!: string | null;
}

/** Body to reserve an address. */
export class V1ReservedIpCreate {
  @StrField({ min: 1, max: 255 })
  name!: string;
  @StrField({
    format: 'ipv4',
    max: 15,
    pattern: /^(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}$/,
    rule: 'must be an IPv4 address',
  })
  address!: string;
  @StrField({
    max: 17,
    pattern: /^[0-9a-fA-F][02468aceACE]([:-][0-9a-fA-F]{2}){5}$/,
    rule: 'must be the MAC of one interface: six pairs of hex digits with colons, not a group address',
  })
  mac!: string;
}

/** States of a floating IP that clients wait for. */
export const floatingIpStatuses = ['available', 'attaching', 'attached', 'detaching', 'error'] as const;

/** A public address that an account holds until it releases it. */
export class V1FloatingIP {
  @StrField()
  id!: string;
  @StrField()
  address!: string;
  @StrField({ description: 'Region' })
  cluster_id!: string;
  @StrField({ description: `One of ${floatingIpStatuses.join(', ')}` })
  status!: string;
  @StrField({ nullable: true, optional: true, description: 'Label' })
  name!: string | null;
  @StrField({ nullable: true, optional: true })
  internal_address!: string | null;
  @StrField({ default: 'interface', description: 'interface, or vpc_nat while a NAT gateway has it' })
  target_kind!: string;
  @StrField({ nullable: true, optional: true })
  vm_id!: string | null;
  @StrField({ nullable: true, optional: true })
  vm_interface_id!: string | null;
  @StrField({ nullable: true, optional: true })
  vm_project_id!: string | null;
  @StrField({ nullable: true, optional: true })
  vpc_id!: string | null;
  @BoolField({ default: false, description: 'Released with what it is attached to' })
  auto_release!: boolean;
  @StrField({ nullable: true, optional: true, description: 'Why the status is error' })
  last_error!: string | null;
  @StrField({ description: 'Rubles, a decimal; charged hour by hour until the release' })
  monthly_price!: string;
  @StrField({ nullable: true, optional: true })
  created_at!: string | null;
}

/** Body to order a floating IP. */
export class V1FloatingIPCreate {
  @IdField({ description: 'Region' })
  cluster_id!: string;
  @StrField({ nullable: true, optional: true, min: 1, max: 255, description: 'Label' })
  name?: string | null;
}

/** Body to attach a floating IP. */
export class V1FloatingIPAttach {
  @IdField({ description: 'Interface of a machine in a VPC of the same region' })
  vm_interface_id!: string;
}

/** Body to label a floating IP; null or nothing clears the label. */
export class V1FloatingIPUpdate {
  @StrField({ nullable: true, optional: true, min: 1, max: 255 })
  name?: string | null;
}
