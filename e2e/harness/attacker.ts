import { readdirSync, readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { MasterKey } from '@nebo/service-kit';
import pg from 'pg';
import type { Nebo } from './nebo.js';
import { type ApiAnswer } from './api.js';

/** What came back over one connection. */
export interface RawAnswer {
  statuses: number[];
  text: string;
  closed: boolean;
}

/** Sends bytes as they are, past every client that would tidy them up; ends when it is quiet or closed. */
export function raw(url: string, bytes: string, quietMs = 250): Promise<RawAnswer> {
  return new Promise((resolve) => {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    let text = '';
    let timer: NodeJS.Timeout;
    const done = (closed: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      const statuses = [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status));
      resolve({ statuses, text, closed });
    };
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => done(false), quietMs);
    };
    socket.on('error', () => undefined);
    socket.on('close', () => done(true));
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      wait();
    });
    socket.on('connect', () => socket.write(Buffer.from(bytes, 'latin1')));
    wait();
  });
}

/** A POST whose client leaves after so many milliseconds, or stays. @returns status 0 when it saw no answer */
export function hastyPost(
  url: string,
  headers: Record<string, string>,
  body: object,
  leaveAfterMs: number | null,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve) => {
    const lost = () => resolve({ status: 0, text: '' });
    const request = httpRequest(
      url,
      { method: 'POST', agent: false, headers: { 'content-type': 'application/json', ...headers } },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk) => (text += chunk));
        response.on('end', () => resolve({ status: response.statusCode!, text })).on('error', lost);
      },
    );
    request.on('error', lost).on('close', lost);
    request.end(JSON.stringify(body));
    if (leaveAfterMs !== null) setTimeout(() => request.destroy(), leaveAfterMs);
  });
}

/** The operator's door over HTTP, as its commands use it. */
export class Operator {
  readonly masterKey: MasterKey;
  readonly token: string;

  constructor(private readonly nebo: Nebo) {
    this.masterKey = MasterKey.fromFile(join(nebo.home, 'master.key'));
    this.token = `nebo_operator_${this.masterKey.derive('operator').toString('base64url')}`;
  }

  async post(command: string, body: object): Promise<ApiAnswer['body']> {
    const { origin } = new URL(this.nebo.credentials.base_url);
    const answer = await fetch(`${origin}/operator/v1/identity-billing/${command}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${command}: ${await answer.text()}`);
    return answer.json();
  }

  /** Every row of every table as text, with the table's name. */
  async rows(): Promise<{ table: string; text: string }[]> {
    const port = readFileSync(join(this.nebo.home, 'postgres/postmaster.pid'), 'utf8').split('\n')[3];
    const client = new pg.Client({
      host: '127.0.0.1',
      port: Number(port),
      user: 'postgres',
      password: this.masterKey.rolePassword('postgres'),
      database: 'postgres',
    });
    await client.connect();
    const { rows: tables } = await client.query<{ name: string }>(
      "select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname not in ('pg_catalog', 'information_schema')",
    );
    const found: { table: string; text: string }[] = [];
    for (const { name } of tables) {
      const { rows } = await client.query<{ text: string }>(`select x::text as text from ${name} x`);
      found.push(...rows.map(({ text }) => ({ table: name, text })));
    }
    await client.end();
    return found;
  }
}

/** All files below a folder. */
export function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}
