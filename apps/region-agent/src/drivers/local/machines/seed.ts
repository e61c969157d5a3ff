import { type MachineSpec } from '@nebo/contracts';
import { fatImage } from './fat-image.js';

/** cloud-init reads YAML, of which JSON is a part that needs no writer of its own. */
const json = (value: unknown): Buffer => Buffer.from(`${JSON.stringify(value, null, 1)}\n`);
const cloudConfig = (value: unknown): Buffer => Buffer.concat([Buffer.from('#cloud-config\n'), json(value)]);

/**
 * The disk from which a machine's cloud-init learns who it is (data source NoCloud). The user's own text is the user data,
 * untouched; user, keys and guest agent are vendor data, which yields to it.
 * @throws Error when the user's text is larger than a seed may be
 */
export function seedImage(id: string, spec: MachineSpec): Buffer {
  const { hostname, default_user, ssh_keys, user_data, install_guest_agent, interfaces } = spec;
  const vendor = {
    user: { name: default_user },
    ssh_authorized_keys: ssh_keys,
    ...(install_guest_agent
      ? {
          packages: ['qemu-guest-agent'],
          runcmd: [['systemctl', 'enable', '--now', 'qemu-guest-agent']],
        }
      : {}),
  };
  const ethernets = Object.fromEntries(
    interfaces.map(({ mac }, index) => [
      `nic${index}`,
      // Only the first interface brings a way out: two default routes would be one too many.
      {
        match: { macaddress: mac.toLowerCase() },
        dhcp4: true,
        ...(index > 0 ? { 'dhcp4-overrides': { 'use-routes': false, 'use-dns': false } } : {}),
      },
    ]),
  );
  return fatImage('CIDATA', [
    {
      name: 'meta-data',
      bytes: json({ 'instance-id': id, 'local-hostname': hostname, 'public-keys': ssh_keys }),
    },
    { name: 'user-data', bytes: user_data === null ? cloudConfig({}) : Buffer.from(user_data) },
    { name: 'vendor-data', bytes: cloudConfig(vendor) },
    { name: 'network-config', bytes: json({ version: 2, ethernets }) },
  ]);
}
