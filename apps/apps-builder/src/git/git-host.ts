import type { GitApi } from './git-api.js';

/** Where a git host answers: for people and clones, and its API. Without a slash at the end. */
export interface GitAddresses {
  web: string;
  api: string;
}

/** Whom a token belongs to. */
export interface GitAccount {
  login: string;
}

/** A repository that a token reaches. */
export interface GitRepository {
  id: string;
  full_name: string;
  default_branch: string | null;
  private: boolean;
}

/** Some repositories of a list; `total` is null where the host does not say. */
export interface GitRepositories {
  repositories: GitRepository[];
  total: number | null;
}

/** A commit as its git host says it. */
export interface GitCommit {
  sha: string;
  message: string | null;
  author: string | null;
}

/** How git reaches a repository; the credential never stands in the address. */
export interface CloneAddress {
  url: string;
  username: string | null;
}

/** What a build's state is called at a git host; hosts have further words, which are not needed. */
export type CommitState = 'pending' | 'success' | 'failure';

/** A commit status. */
export interface CommitStatus {
  state: CommitState;
  /** Tells our status from others of the same commit. */
  context: string;
  description: string;
  /** Where the state can be looked up. */
  url: string;
}

/** Headers of a delivery, names in lower case. */
export type DeliveryHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** A push as all hosts agree on it. */
export interface Push {
  kind: 'push';
  repo_full_name: string;
  /** Null: a tag. */
  branch: string | null;
  tag: string | null;
  deleted: boolean;
  /** The new head; null where the host does not say or the branch is gone. */
  commit: string | null;
  message: string | null;
  author: string | null;
  /** Paths that changed, when the host listed all of them; null when nobody can tell. */
  files: string[] | null;
}

/** What a delivery says once its signature holds. */
export type DeliveryContent =
  | Push
  /** The host tries the webhook. */
  | { kind: 'ping'; repo_full_name: string | null }
  | { kind: 'other'; event: string; repo_full_name: string | null };

/** How a kind of git host lets apps act for a person (RFC 6749); paths from its web address on. */
export interface OAuthDialect {
  authorizePath: string;
  tokenPath: string;
  /** What Nebo asks for, in the host's words. */
  scope: string;
  /** The host checks a proof of who asked (RFC 7636). */
  pkce: boolean;
}

/** How a kind of git host lets an app be installed in accounts, which then opens repositories without a person. */
export interface InstallationDialect {
  /** Where a person installs the app; from the web address on. */
  installPath(slug: string, selfHosted: boolean): string;
  /**
   * Whose account an installation is of. Asked with the token of the person who came back: the id in the address that
   * brought them is not to be believed.
   * @throws GitHostError `not_found` when the person has nothing to do with it
   */
  account(personApi: GitApi, installationId: string): Promise<GitAccount>;
  /** A token for it. @param appApi speaks as the app itself @throws GitHostError */
  token(appApi: GitApi, installationId: string): Promise<{ token: string; expiresInS: number | null }>;
  /** @param page from 1, of the host's `pageSize` entries @throws GitHostError */
  repositories(api: GitApi, page: number): Promise<GitRepositories>;
}

/** A kind of git host: one folder each, listed in `host-list.ts`. It keeps no state; a call brings its API with it. */
export interface GitHost {
  readonly provider: string;
  /**
   * Where it answers.
   * @param baseUrl address of a self-hosted one; null: the hosted one
   * @returns null when there is none: a hosted-only kind with an address, or a self-hosted one without
   */
  addresses(baseUrl: string | null): GitAddresses | null;
  /** Headers that carry a token; none for null. */
  headers(token: string | null): Record<string, string>;
  /** Whom the token belongs to. @throws GitHostError */
  account(api: GitApi): Promise<GitAccount>;
  /** @param page from 1, of `pageSize` entries @throws GitHostError */
  repositories(api: GitApi, page: number): Promise<GitRepositories>;
  readonly pageSize: number;
  /** Null: connected by a token only. */
  readonly oauth: OAuthDialect | null;
  /** Null: it has no apps that are installed. */
  readonly installations: InstallationDialect | null;
  /** Whether its deliveries carry the message of the newest commit; else it is read with the commit that is built. */
  readonly tellsMessages: boolean;
  /** Headers in which a delivery carries its signature or secret. */
  readonly signatureHeaders: readonly string[];
  /** Newest commit of a branch. @throws GitHostError `not_found` for no such repository or branch */
  head(api: GitApi, repo: string, branch: string): Promise<GitCommit>;
  /** @throws GitHostError `not_found` */
  commit(api: GitApi, repo: string, sha: string): Promise<GitCommit>;
  /** Whether the repository is there and readable. @throws GitHostError */
  check(api: GitApi, repo: string): Promise<void>;
  /** Makes the webhook for pushes, or sets the one that leads to the same address. @returns its id @throws GitHostError */
  ensureHook(api: GitApi, repo: string, hook: { url: string; secret: string }): Promise<string>;
  /** Gone already is fine. @throws GitHostError */
  removeHook(api: GitApi, repo: string, id: string): Promise<void>;
  /** @throws GitHostError */
  setStatus(api: GitApi, repo: string, sha: string, status: CommitStatus): Promise<void>;
  clone(addresses: GitAddresses, repo: string, login: string | null): CloneAddress;
  /**
   * Whether a delivery comes from who knows the secret: over the raw bytes, in constant time; a missing or empty signature
   * does not hold.
   */
  verify(headers: DeliveryHeaders, body: Buffer, secret: string, now?: number): boolean;
  /** What makes two deliveries the same one; null: the host has no ids. */
  deliveryId(headers: DeliveryHeaders): string | null;
  /** @param body the parsed JSON @throws Error when it is not what the host sends */
  read(headers: DeliveryHeaders, body: unknown): DeliveryContent;
}

/** Why a git host did not do what was asked. */
export type GitFailure =
  /** The token is not taken any more. */
  | 'unauthorized'
  /** The token has not got the right. */
  | 'forbidden'
  | 'not_found'
  /** It does not answer, or asks to come later. */
  | 'away'
  /** Our own rules forbid its address. */
  | 'refused'
  /** It answered what nobody expects. */
  | 'unexpected';

/** What a git host (or the way to it) said no to; the message is fit for the user. */
export class GitHostError extends Error {
  constructor(
    readonly failure: GitFailure,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'GitHostError';
  }
}
