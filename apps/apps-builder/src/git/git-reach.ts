import { Injectable } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { type ApiError, conflict, unavailable } from '@nebo/service-kit';
import {
  type ConnectionRow,
  findConnection,
  markRefused,
  markWorking,
  reconnect,
} from './connections.rows.js';
import type { GitApi } from './git-api.js';
import { type GitAddresses, type GitHost, GitHostError } from './git-host.js';
import { GitHosts } from './git-hosts.js';
import { TokenRenewal } from './oauth/renewal.js';

/** A git host with whatever opens it. */
export interface Reached {
  host: GitHost;
  api: GitApi;
  addresses: GitAddresses;
  /** Null: without a connection, what everybody may see. */
  connection: ConnectionRow | null;
}

/** Opens git hosts, and keeps in the connection whether its token still works. */
@Injectable()
export class GitReach {
  constructor(
    private readonly database: Database,
    private readonly hosts: GitHosts,
    private readonly renewal: TokenRenewal,
  ) {}

  /**
   * A host through a connection.
   * @throws ApiError 503 for a kind that was taken out of the installation
   */
  connected(row: ConnectionRow): Reached {
    const host = this.hosts.find(row.provider);
    const addresses = host?.addresses(row.base_url === '' ? null : row.base_url) ?? null;
    if (host === null || addresses === null)
      throw unavailable(`git host ${row.provider} is not there any more`);
    const api = this.hosts.api(host, addresses.api, this.renewal.source(row));
    return { host, addresses, connection: row, api };
  }

  /**
   * The host of an app: by its connection, or the public side of a hosted one.
   * @returns null when the connection is gone, or the kind has no hosted side
   */
  async ofApp(app: {
    account_id: string;
    git_provider: string;
    git_connection_id: string | null;
  }): Promise<Reached | null> {
    if (app.git_connection_id !== null) {
      const row = await this.database.transaction((tx) => findConnection(tx, app.git_connection_id));
      return row === null || row.account_id !== app.account_id ? null : this.connected(row);
    }
    const host = this.hosts.find(app.git_provider);
    const addresses = host?.addresses(null) ?? null;
    if (host === null || addresses === null) return null;
    return { host, addresses, connection: null, api: this.hosts.api(host, addresses.api, null) };
  }

  /**
   * Asks a host, for the answer of an operation.
   * @param missing what a "no such thing" of the host is to the caller
   * @throws ApiError 409 `git_reconnect`, `git_forbidden` and `git_refused`, 503 when the host is away
   */
  async ask<T>(
    connection: ConnectionRow | null,
    work: () => Promise<T>,
    missing: () => ApiError,
  ): Promise<T> {
    try {
      return await this.watch(connection, work);
    } catch (error) {
      throw error instanceof GitHostError ? asAnswer(error, connection, missing) : error;
    }
  }

  /** Runs a question and notes in the connection how its token did. @throws GitHostError */
  async watch<T>(connection: ConnectionRow | null, work: () => Promise<T>): Promise<T> {
    try {
      const answer = await work();
      if (connection !== null) await this.database.transaction((tx) => markWorking(tx, connection));
      return answer;
    } catch (error) {
      if (connection !== null && error instanceof GitHostError && error.failure === 'unauthorized')
        await this.database.transaction((tx) => markRefused(tx, connection, reconnect(connection)));
      throw error;
    }
  }
}

function asAnswer(error: GitHostError, row: ConnectionRow | null, missing: () => ApiError): ApiError {
  switch (error.failure) {
    case 'unauthorized':
      return conflict('git_reconnect', row === null ? notPublic : reconnect(row));
    case 'forbidden':
      return conflict('git_forbidden', `${error.message}; give it that right, or connect another token`);
    case 'refused':
      return conflict('git_refused', error.message);
    case 'not_found':
      return missing();
    case 'away':
    case 'unexpected':
      return unavailable(error.message, error);
  }
}

/** What to do about a repository that nobody may see without a token. */
const notPublic = 'the repository is not public: connect the git host by POST /git/connections first';

/** Why a git host does not do its part, as the app shows it in `source_error`. */
export function sentenceOf(error: GitHostError, row: ConnectionRow | null): string {
  if (error.failure === 'unauthorized') return row === null ? notPublic : reconnect(row);
  if (error.failure === 'forbidden')
    return `${error.message}: it needs to read the repository, to manage its webhooks and to set commit statuses`;
  return error.message;
}
