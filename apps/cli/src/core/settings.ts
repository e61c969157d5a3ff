import { configPath, readConfig, type Config, type Profile } from './config.js';
import { parseDuration } from './duration.js';
import { usageError } from './errors.js';
import { nearestText } from './suggest.js';

export const outputFormats = ['table', 'wide', 'json', 'yaml', 'name'] as const;
export type OutputFormat = (typeof outputFormats)[number];

/** The global flags as commander gives them. */
export interface Flags {
  output?: string;
  columns?: string;
  jq?: string;
  /** False with `--no-header`. */
  header: boolean;
  quiet?: boolean;
  yes?: boolean;
  /** False with `--no-input`. */
  input: boolean;
  profile?: string;
  project?: string;
  app?: string;
  apiUrl?: string;
  timeout?: string;
  /** False with `--no-color`. */
  color: boolean;
  debug?: boolean;
}

type Env = Readonly<Record<string, string | undefined>>;

/** What can be known without reading a file; needed before the first line is printed. */
export interface EarlySettings {
  output: OutputFormat;
  quiet: boolean;
  yes: boolean;
  noInput: boolean;
  debug: boolean;
  color: boolean;
  timeoutMs: number | null;
}

export const defaultApiUrl = 'http://127.0.0.1:4000/v1';

/** True for "1", "true", "yes". */
export const isOn = (text: string | undefined): boolean =>
  text !== undefined && /^(1|true|yes|on)$/i.test(text);

/** Flags and environment, flag first. @throws CliError usage */
export function earlySettings(flags: Flags, env: Env): EarlySettings {
  const output = flags.output ?? (env['NEBO_OUTPUT'] || 'table');
  if (!(outputFormats as readonly string[]).includes(output)) {
    const name = flags.output === undefined ? 'NEBO_OUTPUT' : '--output';
    throw usageError(`${name} is one of ${outputFormats.join(', ')}, not "${output}"`);
  }
  const timeout = flags.timeout ?? (env['NEBO_TIMEOUT'] || undefined);
  return {
    output: output as OutputFormat,
    quiet: flags.quiet ?? false,
    yes: flags.yes ?? false,
    noInput: !flags.input || isOn(env['NEBO_NO_INPUT']),
    debug: flags.debug ?? isOn(env['NEBO_DEBUG']),
    color: flags.color,
    timeoutMs:
      timeout === undefined
        ? null
        : parseDuration(timeout, flags.timeout === undefined ? 'NEBO_TIMEOUT' : '--timeout'),
  };
}

/** Which installation, with which key. */
export interface Account {
  apiUrl: string;
  key: string | null;
  /** Where the key came from, for `auth status`. */
  keyFrom: 'NEBO_API_KEY' | 'profile' | null;
  profileName: string;
  /** The profile when it belongs to the address in use, otherwise null: its key and project mean nothing elsewhere. */
  profile: Profile | null;
  config: Config;
  configPath: string;
}

/**
 * The address with `/v1` at its end and no slash behind it.
 * @throws CliError usage when it is not an http(s) address
 */
export function normalApiUrl(text: string, name: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw usageError(`${name} is an address such as ${defaultApiUrl}, not "${text}"`);
  }
  if (!/^https?:$/.test(url.protocol) || url.search || url.hash || url.username)
    throw usageError(`${name} is an http or https address without query and user name, not "${text}"`);
  const path = url.pathname.replace(/\/+$/, '');
  return url.origin + (path.endsWith('/v1') ? path : `${path}/v1`);
}

/**
 * Address and key: flag, environment, profile. A link never sets the address (see `checkLink`).
 * @param newProfile true where a profile is about to be made, so that an unknown name is no error
 * @throws CliError usage
 */
export async function readAccount(flags: Flags, env: Env, newProfile = false): Promise<Account> {
  const path = configPath(env);
  const config = await readConfig(path);
  const asked = flags.profile ?? (env['NEBO_PROFILE'] || undefined);
  const profileName = asked ?? config.current;
  const found = Object.hasOwn(config.profiles, profileName) ? config.profiles[profileName]! : null;
  if (asked !== undefined && !found && !newProfile) {
    const names = Object.keys(config.profiles);
    const near = nearestText(asked, names);
    throw usageError(`There is no profile "${asked}"`, {
      lines: [...(near ? [near] : []), `Profiles: ${names.join(', ') || 'none yet'}`],
      hint: `Make it with: nebo auth login --profile ${asked}`,
    });
  }
  const flagUrl = flags.apiUrl ?? (env['NEBO_API_URL'] || undefined);
  const apiUrl = normalApiUrl(
    flagUrl ?? found?.api_url ?? defaultApiUrl,
    flagUrl === undefined
      ? 'api_url of the profile'
      : flags.apiUrl === undefined
        ? 'NEBO_API_URL'
        : '--api-url',
  );
  // The profile's key must not travel to an address that it was not made for.
  const profile = found && normalApiUrl(found.api_url, 'api_url of the profile') === apiUrl ? found : null;
  const envKey = env['NEBO_API_KEY']?.trim() || null;
  const key = envKey ?? profile?.api_key ?? null;
  const keyFrom = envKey ? 'NEBO_API_KEY' : key ? 'profile' : null;
  return {
    apiUrl,
    key: key === null ? null : checkKey(key),
    keyFrom,
    profileName,
    profile,
    config,
    configPath: path,
  };
}

/** A key is one word of printable characters; anything else cannot stand in a header. @throws CliError usage */
export function checkKey(key: string): string {
  if (!/^[\x21-\x7e]+$/.test(key)) throw usageError('The key holds blanks or characters that no key has');
  return key;
}

/** The key as it may be shown: its prefix up to `live_` and the last four characters. */
export function maskedKey(key: string): string {
  const live = key.indexOf('live_');
  const prefix = live >= 0 && live <= 24 ? key.slice(0, live + 5) : '';
  return key.length >= prefix.length + 12 ? `${prefix}…${key.slice(-4)}` : `${prefix}…`;
}
