import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { type Socket } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { type Api } from './api.js';
import { root, until } from './nebo.js';

/** What came back: which start of the app answered, or what else was said. */
export interface Seen {
  status: number;
  start: string | undefined;
  /** Whether the answer is whole and as it ought to be. */
  good: boolean;
  text: string;
}

/** Deploys `fixtures/sleepy-server` as an app on demand. @returns its id and host, once it is live */
export async function deploySleepy(
  api: Api,
  project: string,
  more: object = {},
): Promise<{ id: string; host: string; build: string }> {
  const name = `sleepy-${randomUUID().slice(0, 8)}`;
  const made = await api.post(`/projects/${project}/apps`, {
    name,
    source_type: 'upload',
    app_type: 'backend',
    readiness_path: '/',
    ...more,
  });
  const raw = await buffer((await packFolder(join(root, 'e2e/fixtures/sleepy-server'))).stream);
  const deploy = await api.call('POST', `/apps/${made.body.id}/deployments`, {
    raw,
    headers: { 'content-type': 'application/gzip' },
  });
  await until(async () => {
    const { body } = await api.get(`/apps/${made.body.id}/builds/${deploy.body.id}?wait=live&timeout=20`);
    if (['error', 'cancelled'].includes(body.status)) throw new Error(`build ${body.status}: ${body.error}`);
    if (['failing', 'never_booted'].includes(body.deploy_state)) throw new Error(body.boot_error);
    return body.deploy_state === 'live';
  }, 120_000);
  return { id: made.body.id, host: `${name}.apps.localhost`, build: deploy.body.id };
}

/** A client of one app through an edge, addressed by Host. */
export class SleepyClient {
  constructor(
    private readonly edgeUrl: string,
    readonly host: string,
  ) {}

  /** A request of the kind that the number says; all of them must be answered by the app. */
  ask(kind: number): Promise<Seen> {
    switch (kind % 6) {
      case 1:
        return this.send('POST', '/', randomBytes(200_000));
      case 2:
        return this.send('PUT', '/', randomBytes(70_000), true);
      case 3:
        return this.events();
      case 4:
        return this.webSocket();
      case 5:
        return this.send('HEAD', '/');
      default:
        return this.send('GET', '/');
    }
  }

  async send(method: string, path: string, body?: Buffer, chunked = false): Promise<Seen> {
    const answer = await this.open(method, path, body, chunked);
    const text = (await buffer(answer)).toString();
    const hash = createHash('sha256')
      .update(body ?? '')
      .digest('hex');
    return this.seen(answer, text, text === (method === 'HEAD' ? '' : hash));
  }

  /** The answer as soon as its head is there. */
  open(method: string, path: string, body?: Buffer, chunked = false): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const length = body && !chunked ? { 'content-length': String(body.length) } : {};
      const call = httpRequest({ ...this.target(path), method, headers: { host: this.host, ...length } });
      call.once('response', resolve).once('error', reject);
      if (chunked && body) {
        call.write(body.subarray(0, 1_000));
        call.end(body.subarray(1_000));
      } else call.end(body);
    });
  }

  private async events(): Promise<Seen> {
    const answer = await this.open('GET', '/events');
    const text = (await buffer(answer)).toString();
    return this.seen(answer, text, text === 'data: 1\n\ndata: 2\n\ndata: 3\n\n');
  }

  /** Opens a WebSocket; without a socket it was refused. */
  connect(): Promise<{ answer: IncomingMessage; socket: Socket | null }> {
    return new Promise((resolve, reject) => {
      const headers = {
        host: this.host,
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': randomBytes(16).toString('base64'),
      };
      const call = httpRequest({ ...this.target('/'), headers });
      call.once('upgrade', (answer, socket: Socket) => resolve({ answer, socket }));
      call.once('response', (answer) => resolve({ answer, socket: null }));
      call.once('error', reject).end();
    });
  }

  private async webSocket(): Promise<Seen> {
    const { answer, socket } = await this.connect();
    if (!socket) return this.seen(answer, (await buffer(answer)).toString(), false);
    const frame = Buffer.concat([Buffer.from([0x82, 0xfe, 0x07, 0xd0]), randomBytes(2_004)]);
    let back = Buffer.alloc(0);
    await new Promise<void>((resolve) => {
      socket.on('data', (chunk: Buffer) => {
        back = Buffer.concat([back, chunk]);
        if (back.length >= frame.length) resolve();
      });
      socket.once('close', resolve).on('error', () => resolve());
      socket.write(frame);
    });
    socket.destroy();
    const seen = this.seen(answer, '', back.equals(frame));
    return { ...seen, status: 200 };
  }

  private target(path: string) {
    const { hostname, port } = new URL(this.edgeUrl);
    return { host: hostname, port, path, agent: false } as const;
  }

  private seen(answer: IncomingMessage, text: string, good: boolean): Seen {
    return { status: answer.statusCode ?? 0, start: answer.headers['x-start'] as string, good, text };
  }
}
