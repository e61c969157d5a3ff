import { type ImageSource, type RegistryLogin } from '@nebo/contracts';
import { ImageFailure, told } from './image-failure.js';

/** A user at a registry. */
export interface Login {
  username: string;
  password: string;
}

/** How an app's login is named, for sentences. */
export const loginVariables = 'NEBO_REGISTRY_HOST, NEBO_REGISTRY_USERNAME and NEBO_REGISTRY_PASSWORD';

/** Other names of the default registry. */
const defaultNames = new Set(['index.docker.io', 'registry-1.docker.io', 'hub.docker.com']);

/**
 * The login to pull an image with; null: as anybody. A login is for one registry: an image of another is none of its business.
 * @throws ImageFailure when a part of it is missing
 */
export function loginFor(
  { login, name }: Pick<ImageSource, 'login' | 'name'>,
  say: (line: string) => void,
): Login | null {
  if (!login) return null;
  const { host, username, password } = complete(login);
  const registry = host
    .trim()
    .toLowerCase()
    .replace(/^https?:\/\//, '')
    .replace(/\/.*$/, '');
  if ((defaultNames.has(registry) ? 'docker.io' : registry) === name.registry) return { username, password };
  say(`the app's login is for ${told(registry)}, and the image is of ${name.registry}: it is pulled without`);
  return null;
}

function complete({ host, username, password }: RegistryLogin) {
  if (host !== null && username !== null && password !== null) return { host, username, password };
  const missing = Object.entries({ HOST: host, USERNAME: username, PASSWORD: password })
    .filter(([, value]) => value === null)
    .map(([part]) => `NEBO_REGISTRY_${part}`);
  throw new ImageFailure(
    `The app's login at a registry is not complete: ${missing.join(' and ')} ${missing.length > 1 ? 'are' : 'is'} missing.`,
  );
}

/** RFC 7617. */
export const basicOf = ({ username, password }: Login): string =>
  `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
