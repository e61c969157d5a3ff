import { readFileSync } from 'node:fs';
import { Inject, Injectable } from '@nestjs/common';
import { type Config, ConfigError, RUNTIME, type Runtime } from '@nebo/service-kit';
import { parse } from 'yaml';
import { cleanAddress } from '../base-address.js';
import { gitHosts } from '../host-list.js';

/** The operator's setting that names the file with the OAuth apps of git hosts. */
export const gitConfigSetting = 'NEBO_GIT_CONFIG';

/** What this installation is called at a git host whose app is installed in accounts. */
export interface InstalledApp {
  id: string;
  /** Last part of the app's address at the host. */
  slug: string;
  /** PEM. */
  privateKey: string;
}

/** This installation as a git host knows it. */
export interface OAuthApp {
  provider: string;
  /** Address of a self-hosted host, in its one form; null: the hosted one. */
  baseUrl: string | null;
  clientId: string;
  clientSecret: string;
  installed: InstalledApp | null;
}

const keysOf = {
  root: ['oauth_apps'],
  entry: ['provider', 'base_url', 'client_id', 'client_secret_env', 'installation'],
  installation: ['app_id', 'slug', 'private_key_file'],
} as const;

/**
 * The OAuth apps that the operator has set, none without a file.
 * @throws ConfigError naming the file, the place in it and what is wrong
 */
export function loadOAuthApps(config: Config): OAuthApp[] {
  const file = config.optional(gitConfigSetting);
  if (file === undefined) return [];
  const fail = (place: string, words: string) => new ConfigError(`${file}: ${place} ${words}`);
  const root = fieldsOf(readYaml(file), keysOf.root, (words) => fail('the file', words));
  const list = root['oauth_apps'] ?? [];
  if (!Array.isArray(list)) throw fail('oauth_apps', 'must be a list');
  const seen = new Set<string>();
  return list.map((value: unknown, index) => {
    const place = `oauth_apps[${index}]`;
    const app = readApp(config, value, (words) => fail(place, words));
    const key = `${app.provider} ${app.baseUrl}`;
    if (seen.has(key)) throw fail(place, 'names a git host that is there already');
    seen.add(key);
    return app;
  });
}

type Fail = (words: string) => ConfigError;

function readApp(config: Config, value: unknown, fail: Fail): OAuthApp {
  const entry = fieldsOf(value, keysOf.entry, fail);
  const text = (name: string) => textOf(entry, name, fail);
  const provider = text('provider');
  const host = gitHosts.find((one) => one.provider === provider);
  const able = gitHosts.filter(({ oauth }) => oauth !== null).map((one) => one.provider);
  if (!host?.oauth)
    throw fail(`provider "${provider}" has no OAuth apps; those that have: ${able.join(', ')}`);
  let baseUrl: string | null = null;
  try {
    if (entry['base_url'] != null) baseUrl = cleanAddress(text('base_url'));
  } catch (error) {
    throw error instanceof ConfigError ? error : fail(`base_url ${(error as Error).message}`);
  }
  if (host.addresses(baseUrl) === null)
    throw fail(
      baseUrl === null ? `${provider} needs its base_url` : `${provider} is hosted only, without base_url`,
    );
  const variable = text('client_secret_env');
  const clientSecret = config.optional(variable);
  if (clientSecret === undefined) throw fail(`the environment variable ${variable} is not set`);
  const installed = entry['installation'] == null ? null : readInstalled(entry['installation'], fail);
  if (installed !== null && host.installations === null)
    throw fail(`installation: ${provider} has no apps that are installed`);
  return { provider, baseUrl, clientId: text('client_id'), clientSecret, installed };
}

function readInstalled(value: unknown, fail: Fail): InstalledApp {
  const entry = fieldsOf(value, keysOf.installation, (words) => fail(`installation: ${words}`));
  const text = (name: string) => textOf(entry, name, fail);
  const file = text('private_key_file');
  let privateKey: string;
  try {
    privateKey = readFileSync(file, 'utf8');
  } catch (error) {
    throw fail(`private_key_file cannot be read: ${(error as Error).message}`);
  }
  return { id: text('app_id'), slug: text('slug'), privateKey };
}

function readYaml(file: string): unknown {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new ConfigError(`${gitConfigSetting}: cannot read ${file}: ${(error as Error).message}`);
  }
  try {
    return parse(text);
  } catch (error) {
    throw new ConfigError(`${file}: is no YAML: ${(error as Error).message}`);
  }
}

function fieldsOf(value: unknown, known: readonly string[], fail: Fail): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw fail('must have fields');
  const odd = Object.keys(value).find((name) => !known.includes(name));
  if (odd !== undefined) throw fail(`does not know "${odd}"; it knows ${known.join(', ')}`);
  return value as Record<string, unknown>;
}

function textOf(entry: Record<string, unknown>, name: string, fail: Fail): string {
  const value = entry[name];
  const text = typeof value === 'number' ? String(value) : value;
  if (typeof text !== 'string' || text === '') throw fail(`needs ${name}`);
  return text;
}

/** The OAuth apps of this installation, read once at start. */
@Injectable()
export class OAuthApps {
  readonly all: readonly OAuthApp[];

  constructor(@Inject(RUNTIME) { config }: Runtime) {
    this.all = loadOAuthApps(config);
  }

  /** @param baseUrl null: the hosted git host */
  find(provider: string, baseUrl: string | null): OAuthApp | null {
    return this.all.find((app) => app.provider === provider && app.baseUrl === baseUrl) ?? null;
  }

  /** Where there is one, for a sentence. */
  get names(): string {
    const names = this.all.map(({ provider, baseUrl }) =>
      baseUrl === null ? provider : `${provider} at ${baseUrl}`,
    );
    return names.length === 0 ? 'none' : names.join(', ');
  }
}
