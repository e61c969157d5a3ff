import {
  AnyObjectField,
  BoolField,
  EnumField,
  IdField,
  IntField,
  ListField,
  StrField,
  StringsField,
  TimeField,
} from '../fields.js';

/** Words of `V1VM.status`. Good ends `active` and `stopped`, bad ones `error` and `failed`; each bad one has a reason. */
export const vmStatuses = [
  'pending',
  'provisioning',
  'active',
  'stopping',
  'stopped',
  'starting',
  'restarting',
  'restoring',
  'deleting',
  'error',
  'failed',
] as const;
export type VmStatus = (typeof vmStatuses)[number];

/** Periods that a machine may be paid for in months. */
export const vmPeriodMonths = [1, 3, 6, 12] as const;

/** An SSH key that can be put into machines. */
export class V1SshKey {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @StrField()
  public_key!: string;
  @StrField({ description: 'SHA256:… of the key, as ssh-keygen -l shows it' })
  fingerprint!: string;
  @TimeField({ declared: true })
  created_at!: string;
}

/** Body to add an SSH key. */
export class V1SshKeyCreate {
  @StrField({ min: 1, max: 255 })
  name!: string;
  @StrField({ min: 1, max: 16_384, description: 'One line of an OpenSSH public key file' })
  public_key!: string;
}

/** A region: where machines run. Its id is what other records call `cluster_id`. */
export class V1Region {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @BoolField({ description: 'Taken where a request names no region' })
  is_default!: boolean;
  @StrField({ nullable: true, description: 'Rubles a month of one floating IP; null when no price is set' })
  floating_ip_monthly_price!: string | null;
}

/** A size of machines with its prices in rubles. */
export class V1VMPlan {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @IntField()
  vcpu!: number;
  @IntField({ description: 'MB' })
  mem!: number;
  @IntField({ description: 'GB, included in the price' })
  disk_size!: number;
  @IntField({ description: 'GB; what is beyond the included disk is paid per GB' })
  max_disk_size!: number;
  @StrField({ description: 'Rubles for a calendar month' })
  monthly_price!: string;
  @StrField({ description: 'Rubles for an hour' })
  hourly_price!: string;
}

/** One version of an image family. */
export class ImageCatalogVersion {
  @StrField()
  version!: string;
  @StrField({ description: 'The newest build' })
  image_id!: string;
  @StrField({ nullable: true, optional: true })
  exact_version!: string | null;
  @AnyObjectField({ description: 'Image id by region' })
  by_cluster!: Record<string, string>;
}

/** An image family, as a picker shows it. */
export class ImageCatalogFamily {
  @StrField()
  slug!: string;
  @StrField()
  name!: string;
  @StrField()
  kind!: string;
  @StrField()
  os_family!: string;
  @StrField({ nullable: true, optional: true })
  default_version!: string | null;
  @StrField({ nullable: true, optional: true })
  description!: string | null;
  @StrField({ nullable: true, optional: true })
  logo_url!: string | null;
  @StrField({ nullable: true, optional: true })
  readme!: string | null;
  @StringsField({ optional: true })
  ports!: string[];
  @ListField(() => ImageCatalogVersion)
  versions!: ImageCatalogVersion[];
}

/** An image. */
export class ImageResponse {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @StrField()
  filename!: string;
}

/** The images that an account may use. */
export class ImagesListResponse {
  @ListField(() => ImageResponse)
  images!: ImageResponse[];
  @ListField(() => ImageCatalogFamily)
  families!: ImageCatalogFamily[];
}

/** A network interface of a new machine. */
export class V1VMInterface {
  @EnumField(['vpc', 'public'], { description: 'public is not offered here' })
  type!: string;
  @IdField({ nullable: true, optional: true, description: 'Default: the default VPC of the region' })
  vpc_id?: string | null;
  @BoolField({
    default: false,
    description: 'Order a floating IP and attach it; released with the machine unless it was detached before',
  })
  floating_ip: boolean = false;
  @BoolField({ default: false })
  dhcp4: boolean = false;
  @BoolField({ default: true })
  enable_ipv4: boolean = true;
  @BoolField({ default: false })
  enable_ipv6: boolean = false;
}

/** What every order of a machine says. */
export class V1VMOrder {
  @StrField({ min: 1, max: 255 })
  name!: string;
  @IntField({ min: 1, nullable: true, optional: true })
  vcpu?: number | null;
  @IntField({ min: 1, nullable: true, optional: true, description: 'MB' })
  mem?: number | null;
  @IntField({ min: 1, nullable: true, optional: true })
  disk_size_gb?: number | null;
  @BoolField({ default: true })
  auto_renew: boolean = true;
  @IntField({ min: 0, max: 10, default: 0 })
  backup_count: number = 0;
  @StrField({ nullable: true, optional: true, max: 65_536, description: 'User data in YAML' })
  cloud_init?: string | null;
  @BoolField({
    default: false,
    description:
      'Billed per second from creation until its deletion is asked for; ended when the balance is used up. Without period and backups',
  })
  ephemeral: boolean = false;
  @BoolField({ default: true })
  install_guest_agent: boolean = true;
  @ListField(() => V1VMInterface, { optional: true, maxItems: 8 })
  interfaces?: V1VMInterface[];
  @IntField({ min: 1, max: 366, nullable: true, optional: true })
  period_days?: number | null;
  @IntField({ min: 1, max: 12, nullable: true, optional: true, description: '1, 3, 6 or 12' })
  period_months?: number | null;
  @StringsField({ optional: true, maxItems: 50 })
  ssh_key_ids?: string[];
}

/** Body to create a machine. */
export class V1VMCreate extends V1VMOrder {
  @StrField({
    min: 1,
    max: 63,
    pattern: /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/,
    rule: 'must be lower-case letters, digits and hyphens',
  })
  hostname!: string;
  @IdField()
  image_id!: string;
  @IdField()
  vm_plan_id!: string;
  @IdField()
  cluster_id!: string;
  @StrField({
    min: 1,
    max: 32,
    pattern: /^[a-z_][a-z0-9_-]*$/,
    rule: 'must be a login name: lower-case letters, digits, _ and -, not beginning with a digit',
  })
  default_user!: string;
}

/** Body to change a machine; what is absent stays. */
export class V1VMUpdate {
  @StrField({ optional: true, min: 1, max: 255 })
  name?: string;
  @BoolField({ optional: true })
  auto_renew?: boolean;
  @IdField({
    optional: true,
    description:
      'A larger plan: its processors and memory count from the next start, its price for the rest of the paid period at once',
  })
  vm_plan_id?: string;
  @IntField({ min: 1, optional: true, description: 'GB, not less than now; the disk grows at once' })
  disk_size_gb?: number;
}

/** Optional body of a start. */
export class VMStartRequest {
  @BoolField({ default: false, description: 'Confirms that an expired period is paid anew' })
  renew: boolean = false;
  @StrField({ nullable: true, optional: true, max: 2_000 })
  quote_token?: string | null;
  @StrField({ nullable: true, optional: true, max: 255, description: 'As the header Idempotency-Key' })
  idempotency_key?: string | null;
}

/** What the next period of a machine costs. */
export class V1VMRenewalQuote {
  @StrField({ description: 'Goes into the start that pays it' })
  quote_token!: string;
  @StrField({ description: 'Rubles' })
  amount!: string;
  @TimeField({ declared: true })
  period_start!: string;
  @TimeField({ declared: true })
  period_end!: string;
  @TimeField({ declared: true, description: 'Until then the price stands' })
  valid_until!: string;
}

/** A network interface of a machine. */
export class V1VMInterfaceOut {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @StrField()
  type!: string;
  @StrField()
  mac!: string;
  @StringsField()
  ipv4_addresses!: string[];
  @StrField({ nullable: true, optional: true })
  vpc_id!: string | null;
}

/** A floating IP of a machine. */
export class V1VMFloatingIP {
  @StrField()
  id!: string;
  @StrField()
  address!: string;
  @StrField()
  status!: string;
}

/** A virtual machine. */
export class V1VM {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @StrField()
  hostname!: string;
  @StrField()
  status!: string;
  @StrField()
  project_id!: string;
  @IntField()
  vcpu!: number;
  @IntField({ description: 'MB' })
  mem!: number;
  @IntField({ description: 'GB' })
  disk_size!: number;
  @BoolField({ default: false })
  ephemeral!: boolean;
  @ListField(() => V1VMInterfaceOut, { optional: true })
  interfaces!: V1VMInterfaceOut[];
  @ListField(() => V1VMFloatingIP, { optional: true })
  floating_ips!: V1VMFloatingIP[];
  @StringsField({ optional: true })
  ipv4_addresses!: string[];
  @BoolField({ default: true })
  install_guest_agent!: boolean;
  @StrField({ nullable: true, optional: true, description: 'connected or absent; null when not probed' })
  guest_agent_state!: string | null;
  @TimeField({ nullable: true, optional: true, declared: true })
  guest_agent_checked_at!: string | null;
  @StrField()
  image_id!: string;
  @StrField()
  vm_plan_id!: string;
  @StrField()
  cluster_id!: string;
  @TimeField({ nullable: true, optional: true, declared: true })
  paid_until!: string | null;
  @BoolField()
  auto_renew!: boolean;
  @StrField({
    nullable: true,
    optional: true,
    description: 'Why the status is what it is, where that needs a word',
  })
  status_reason!: string | null;
  @TimeField({ declared: true })
  created_at!: string;
  @BoolField({
    nullable: true,
    optional: true,
    description: 'Whether a region that only simulates machines runs it; null until one has begun',
  })
  simulated!: boolean | null;
}

/** The answer of a power action. */
export class V1PowerActionResult {
  @StrField()
  status!: string;
  @StrField()
  message!: string;
}

/** The answer of a delete that takes time. */
export class DeleteAccepted {
  @StrField({ description: 'The state that the thing was moved to' })
  status!: string;
}
