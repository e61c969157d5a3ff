import type { WhoAmIResponse } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { configPath, readConfig, writeConfig } from '../core/config.js';
import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { missing } from '../core/prompts.js';
import { flag, type GroupSpec } from '../core/program.js';
import { checkKey, maskedKey, readAccount } from '../core/settings.js';
import { readAll } from '../core/stdin.js';
import { nearestText } from '../core/suggest.js';

/** `nebo auth`: the profiles with their keys. */
export const auth: GroupSpec = {
  name: 'auth',
  summary: 'log in and out, choose a profile',
  commands: [
    {
      usage: 'login',
      summary: 'check a key and keep it in a profile',
      example: 'nebo auth login --api-url https://cloud.example.com/v1\nnebo auth login --with-key < key.txt',
      notes:
        'The key is asked for, hidden, or read from stdin; never from an argument, which every process can see.',
      flags: [flag('--with-key', 'read the key from stdin')],
      run: (ctx, _args, options) => login(ctx, options['withKey'] === true),
    },
    {
      usage: 'status',
      summary: 'which profile, address and key are in use, and whether the key is good',
      example: 'nebo auth status',
      run: status,
    },
    {
      usage: 'logout',
      summary: 'forget the key of a profile',
      example: 'nebo auth logout --profile work',
      notes: 'The key itself stays valid: the operator revokes it.',
      run: logout,
    },
    {
      usage: 'switch <PROFILE>',
      summary: 'make a profile the current one',
      example: 'nebo auth switch work',
      run: (ctx, [name]) => switchTo(ctx, String(name)),
    },
  ],
};

async function login(ctx: Context, withKey: boolean): Promise<void> {
  const {
    apiUrl,
    profileName,
    config,
    configPath: path,
    profile,
  } = await readAccount(ctx.flags, ctx.io.env, true);
  let key: string;
  if (withKey) key = (await readAll(ctx.io.stdin)).trim();
  else if (ctx.prompts.possible) {
    ctx.talk.notice(`Address: ${apiUrl}. The operator makes keys; npm start tells that of its demo account.`);
    key = await ctx.prompts.askHidden('Key (hidden): ');
  } else
    throw missing(
      'key',
      '--with-key reads it from stdin (nebo auth login --with-key < key.txt), or set NEBO_API_KEY',
    );
  if (key === '') throw usageError('The key is empty');
  checkKey(key);
  warnAboutPlainHttp(ctx, apiUrl);
  // Saved only after the server took it: a profile with a bad key would break every later command.
  const me = await ctx.clientFor(apiUrl, key).get<WhoAmIResponse>('/account');
  const before = profile ?? { api_url: apiUrl };
  config.profiles[profileName] = { ...before, api_url: apiUrl, api_key: key };
  config.current = profileName;
  await writeConfig(path, config);
  ctx.talk.notice(`Logged in to ${apiUrl} as account ${me.account_id}; profile "${profileName}" in ${path}`);
  if (ctx.io.env['NEBO_API_KEY']) ctx.talk.warn('NEBO_API_KEY is set and wins over the profile');
  if (ctx.print.structured) await ctx.print.value(me);
}

function warnAboutPlainHttp(ctx: Context, apiUrl: string): void {
  const { protocol, hostname } = new URL(apiUrl);
  if (protocol === 'http:' && !/^(localhost|127\.|\[::1\]|.*\.localhost$)/.test(hostname))
    ctx.talk.warn(`${apiUrl} is not encrypted: the key can be read on the way`);
}

async function status(ctx: Context): Promise<void> {
  const { apiUrl, key, keyFrom, profileName, configPath: path } = await ctx.account();
  if (key === null) {
    throw new CliError(exitCodes.key, 'no_key', `There is no key for ${apiUrl} (profile "${profileName}")`, {
      hint: 'Log in with "nebo auth login", or set NEBO_API_KEY.',
    });
  }
  const me = await (await ctx.client()).get<WhoAmIResponse>('/account');
  await ctx.print.record({
    api_url: apiUrl,
    profile: profileName,
    key: maskedKey(key),
    key_from: keyFrom === 'profile' ? path : keyFrom,
    account_id: me.account_id,
    key_id: me.key_id,
  });
}

async function logout(ctx: Context): Promise<void> {
  const { profileName, config, configPath: path } = await ctx.account();
  const found = Object.hasOwn(config.profiles, profileName) ? config.profiles[profileName]! : null;
  if (!found?.api_key) {
    ctx.talk.notice(`Profile "${profileName}" has no key.`);
    return;
  }
  delete found.api_key;
  await writeConfig(path, config);
  ctx.talk.notice(
    `The key of profile "${profileName}" is forgotten here. It stays valid until the operator revokes it.`,
  );
}

async function switchTo(ctx: Context, name: string): Promise<void> {
  const path = configPath(ctx.io.env);
  const config = await readConfig(path);
  if (!Object.hasOwn(config.profiles, name)) {
    const names = Object.keys(config.profiles);
    const near = nearestText(name, names);
    throw usageError(`There is no profile "${name}"`, {
      lines: [...(near ? [near] : []), `Profiles: ${names.join(', ') || 'none yet'}`],
    });
  }
  config.current = name;
  await writeConfig(path, config);
  ctx.talk.notice(`Profile "${name}" (${config.profiles[name]!.api_url}) is in use now.`);
}
