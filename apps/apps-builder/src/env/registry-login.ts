import type { EnvEntry, RegistryLogin } from '@nebo/contracts';

/** Variables that say how an image app logs in to its registry. They are for the pull alone: nothing of the app sees them. */
const variables: Readonly<Record<string, keyof RegistryLogin>> = {
  NEBO_REGISTRY_HOST: 'host',
  NEBO_REGISTRY_USERNAME: 'username',
  NEBO_REGISTRY_PASSWORD: 'password',
};

export const isLoginVariable = (name: string): boolean => Object.hasOwn(variables, name);

/** Shown to nobody, whatever its maker says. */
export const isAlwaysSecret = (name: string): boolean => variables[name] === 'password';

/** An app's variables without those of its login. */
export const withoutLogin = <T extends { name: string }>(entries: readonly T[]): T[] =>
  entries.filter(({ name }) => !isLoginVariable(name));

/** The login that variables speak of; null when they speak of none. */
export function loginOf(entries: readonly EnvEntry[]): RegistryLogin | null {
  const login: RegistryLogin = { host: null, username: null, password: null };
  for (const { name, value } of entries) {
    const field = isLoginVariable(name) ? variables[name] : undefined;
    if (field) login[field] = value;
  }
  return Object.values(login).some((value) => value !== null) ? login : null;
}
