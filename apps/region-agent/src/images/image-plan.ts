import { type EnvEntry } from '@nebo/contracts';
import { ImageFailure, told } from './image-failure.js';
import { type ImageSettings } from './manifest.js';

/** The port of an app whose image and variables name none. */
const usualPort = 8080;
const usualPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Where the app is asked, and what PORT says: the app's own variable PORT, else the image's, else the port that it exposes
 * (of several 8080, 80 or the lowest), else 8080.
 */
export function portOf(settings: ImageSettings, env: readonly EnvEntry[]): { port: number; from: string } {
  const own = portNumber(env.findLast(({ name }) => name === 'PORT')?.value);
  if (own !== null) return { port: own, from: 'the variable PORT' };
  const image = portNumber(settings.env.findLast((line) => line.startsWith('PORT='))?.slice('PORT='.length));
  if (image !== null) return { port: image, from: "the image's variable PORT" };
  const { ports } = settings;
  const exposed = [usualPort, 80].find((port) => ports.includes(port)) ?? [...ports].sort((a, b) => a - b)[0];
  if (exposed !== undefined) return { port: exposed, from: 'EXPOSE of the image' };
  return { port: usualPort, from: 'the image exposes none' };
}

function portNumber(text: string | undefined): number | null {
  const port = /^\d{1,5}$/.test(text ?? '') ? Number(text) : 0;
  return port > 0 && port < 65_536 ? port : null;
}

/** The line of /etc/passwd that an image's user has. */
export interface ImageUser {
  name: string;
  home: string;
  shell: string;
}

/**
 * The user that an image wants to be, by its /etc/passwd; a number without a line is a user without a name.
 * @param passwd text of the image's /etc/passwd, empty when it has none
 * @throws ImageFailure for a name that the image does not know
 */
export function userOf({ user }: ImageSettings, passwd: string): ImageUser {
  const wanted = user.split(':', 1)[0] || 'root';
  const isNumber = /^\d+$/.test(wanted);
  for (const line of passwd.split('\n')) {
    const [name = '', , uid, , , home = '', shell = ''] = line.split(':');
    if (name === '' || name.startsWith('#')) continue;
    if (isNumber ? uid === wanted : name === wanted) return { name, home: home || '/', shell };
  }
  if (wanted === 'root' || wanted === '0') return { name: 'root', home: '/root', shell: '/bin/sh' };
  if (isNumber) return { name: 'app', home: '/', shell: '' };
  throw new ImageFailure(`The image is to run as "${told(wanted)}", which its /etc/passwd does not know.`);
}

/** The image's /etc/passwd with its user under the number that the process really has. */
export function passwdFor(user: ImageUser, passwd: string, uid: number, gid: number): string {
  const lines = passwd
    .split('\n')
    .filter(
      (line) => line !== '' && line.split(':', 1)[0] !== user.name && line.split(':')[2] !== String(uid),
    );
  return [`${user.name}:x:${uid}:${gid}::${user.home}:${user.shell}`, ...lines, ''].join('\n');
}

/** The image's /etc/group with the group that the process really has. */
export function groupFor(group: string, gid: number): string {
  const lines = group.split('\n').filter((line) => line !== '' && line.split(':')[2] !== String(gid));
  return [`nebo-image:x:${gid}:`, ...lines, ''].join('\n');
}

/**
 * The variables of an image's process: what the image says, what the region adds, what the app's owner set, PORT.
 * @param region of the host: the way out
 */
export function envOf(
  settings: ImageSettings,
  { home }: ImageUser,
  region: readonly EnvEntry[],
  own: readonly EnvEntry[],
  port: number,
): EnvEntry[] {
  const plain = (name: string, value: string): EnvEntry => ({ name, value, secret: false });
  const image = settings.env.map((line) => {
    const equals = line.indexOf('=');
    return equals < 0 ? plain(line, '') : plain(line.slice(0, equals), line.slice(equals + 1));
  });
  return [
    plain('PATH', usualPath),
    plain('HOME', home),
    ...image,
    ...region,
    ...own,
    plain('PORT', String(port)),
  ];
}

/**
 * What is started: the image's own words, without any shell; a command of the app's owner is for a shell, the image's or,
 * where it has none, one of the host.
 * @param shell how that shell is started
 */
export function argvOf(settings: ImageSettings, startCommand: string, shell: readonly string[]): string[] {
  return startCommand === '' ? [...settings.entrypoint, ...settings.cmd] : [...shell, '-c', startCommand];
}
