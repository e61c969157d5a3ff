import pico from 'picocolors';
import { ApiClient } from '../http/client.js';
import { Printer } from '../output/printer.js';
import { type CliError, timedOut, usageError } from './errors.js';
import { wantsColor, type Io } from './io.js';
import { checkLink, findLink, type Link } from './link.js';
import { Prompts } from './prompts.js';
import { earlySettings, readAccount, type Account, type EarlySettings, type Flags } from './settings.js';
import { Talk } from './talk.js';

declare const __NEBO_VERSION__: string | undefined;

/** The version of this command; the build sets it. */
export const version = typeof __NEBO_VERSION__ === 'string' ? __NEBO_VERSION__ : '0.0.0';

/** A server that says nothing for so long is not waited for any longer. Milliseconds. */
const idleMs = 60_000;

/** Everything one run of one command needs. */
export class Context {
  readonly early: EarlySettings;
  readonly talk: Talk;
  readonly print: Printer;
  readonly prompts: Prompts;
  /** Ends with Ctrl-C, and with `--timeout` where the command does not wait for work (see `waitSignal`). */
  readonly signal: AbortSignal;
  private accountRead: Promise<Account> | undefined;
  private linkRead: Promise<Link | null> | undefined;
  private clients = new Set<ApiClient>();

  /**
   * @param interrupt aborted with a CliError on Ctrl-C
   * @throws CliError usage for a wrong global flag or variable
   */
  constructor(
    readonly io: Io,
    readonly flags: Flags,
    readonly interrupt: AbortSignal,
    /** True for commands that start work and wait for it: `--timeout` then counts from the start of the wait. */
    private readonly waits = false,
  ) {
    this.early = earlySettings(flags, io.env);
    const { output, debug } = this.early;
    const structured = output === 'json' || output === 'yaml' || flags.jq !== undefined;
    this.talk = new Talk(io, {
      // A program that asked for JSON reads stderr for the one JSON error; talk around it would break that.
      quiet: this.early.quiet || (structured && !io.stderr.isTTY && !debug),
      debug,
      color: wantsColor(io, io.stderr, this.early.color),
      jsonErrors: output === 'json' || output === 'yaml',
    });
    this.print = new Printer(
      io,
      this.talk,
      { output, columns: flags.columns, jq: flags.jq, header: flags.header },
      pico.createColors(wantsColor(io, io.stdout, this.early.color)).bold,
    );
    this.prompts = new Prompts(io, this.talk, this.early.noInput);
    this.signal = waits ? interrupt : this.waitSignal(null);
  }

  /**
   * A signal that ends with Ctrl-C or when `--timeout` has passed from now.
   * @param defaultMs the limit without the flag, null for none
   */
  waitSignal(defaultMs: number | null): AbortSignal {
    const ms = this.early.timeoutMs ?? defaultMs;
    return ms === null ? this.interrupt : AbortSignal.any([this.interrupt, after(ms, () => timedOut(ms))]);
  }

  /** Address and key. @throws CliError usage */
  account(): Promise<Account> {
    return (this.accountRead ??= readAccount(this.flags, this.io.env));
  }

  /** The API with the key in use; a missing key is exit 3 at the first call. */
  async client(): Promise<ApiClient> {
    const { apiUrl, key } = await this.account();
    return this.clientFor(apiUrl, key);
  }

  /** The API at an address with a key, for a login. */
  clientFor(apiUrl: string, key: string | null): ApiClient {
    const client = new ApiClient({
      apiUrl,
      key,
      talk: this.talk,
      signal: this.signal,
      env: this.io.env,
      idleMs,
      version,
    });
    this.clients.add(client);
    return client;
  }

  /** The link that holds for the working folder, checked against the address in use. @throws CliError usage */
  link(): Promise<Link | null> {
    return (this.linkRead ??= this.readLink());
  }

  /** What the user said about the project, as name or id: flag, environment, link, profile. */
  async projectReference(withLink = true): Promise<string | null> {
    const said = this.flags.project ?? (this.io.env['NEBO_PROJECT'] || undefined);
    if (said !== undefined) return said;
    const link = withLink ? await this.link() : null;
    return link?.project_id ?? (await this.account()).profile?.project_id ?? null;
  }

  /** What the user said about the app, as name or id: flag, environment. */
  appReference(): string | null {
    return this.flags.app ?? (this.io.env['NEBO_APP'] || null);
  }

  /** `--no-input`, a pipe, and no `--yes`: the question cannot be put. @throws CliError usage */
  async sure(question: string): Promise<boolean> {
    if (this.early.yes) return true;
    if (!this.prompts.possible) throw usageError(`${question} Nobody can be asked here: say --yes`);
    return this.prompts.confirm(question);
  }

  /** Lets connections go, so that the process can end. */
  close(): void {
    this.talk.clear();
    for (const client of this.clients) client.close();
  }

  private async readLink(): Promise<Link | null> {
    const found = await findLink(this.io.cwd);
    return found && checkLink(found.link, found.folder, (await this.account()).apiUrl);
  }
}

function after(ms: number, reason: () => CliError): AbortSignal {
  const controller = new AbortController();
  setTimeout(() => controller.abort(reason()), ms).unref();
  return controller.signal;
}
