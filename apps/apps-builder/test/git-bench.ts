import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { hookTypeHeader, type V1AppDelivery, type V1GitConnection } from '@nebo/contracts';
import type { TestAnswer } from '@nebo/service-kit/testing';
import { type GitHostOptions, GitHostPart } from '@nebo/test-kit';
import { Bench, gateway } from './harness.js';

/** apps-builder with a git host beside it, whose webhooks arrive as through the gateway. */
export class GitBench {
  private constructor(
    readonly bench: Bench,
    readonly host: GitHostPart,
    private readonly relay: Server,
    readonly publicUrl: string,
  ) {}

  static async start(options: GitHostOptions = {}, env: Record<string, string> = {}): Promise<GitBench> {
    const host = await GitHostPart.start(options);
    const made: GitBench[] = [];
    const relay = createServer((request, response) => {
      void buffer(request).then(async (body) => {
        const id = request.url!.slice('/hooks/git/'.length);
        const headers = request.headers as Record<string, string>;
        const answer = await made[0]!.deliver(id, body, headers);
        response.writeHead(answer.status).end(answer.text);
      });
    });
    await new Promise<void>((resolve) => relay.listen(0, '127.0.0.1', () => resolve()));
    const publicUrl = `http://127.0.0.1:${(relay.address() as AddressInfo).port}`;
    const bench = await Bench.start({
      NEBO_SAFE_NET_ALLOW: host.address,
      NEBO_PUBLIC_URL: publicUrl,
      ...env,
    });
    const all = new GitBench(bench, host, relay, publicUrl);
    made.push(all);
    return all;
  }

  /** A delivery as the gateway hands it on. */
  deliver(id: string, body: Buffer, headers: Record<string, string> = {}): Promise<TestAnswer> {
    const { 'content-type': type = 'application/json', 'content-length': _length, ...rest } = headers;
    return this.bench.nebo.request('apps-builder', {
      method: 'POST',
      path: `/internal/v1/hooks/git/${id}`,
      as: gateway,
      body,
      headers: { ...rest, 'content-type': 'application/octet-stream', [hookTypeHeader]: type },
    });
  }

  /** Connects the host with its token. */
  async connect(more: Record<string, unknown> = {}): Promise<V1GitConnection> {
    const answer = await this.bench.api('POST', 'git/connections', {
      provider: this.host.dialect,
      base_url: this.host.url,
      token: this.host.token,
      ...more,
    });
    if (answer.status !== 201) throw new Error(answer.text);
    return answer.body as V1GitConnection;
  }

  /** An app that is built from a repository. */
  app(
    connection: V1GitConnection,
    repo: string,
    more: Record<string, unknown> = {},
  ): Promise<TestAnswer['body']> {
    return this.bench.app({
      source_type: 'git',
      git_provider: connection.provider,
      git_connection_id: connection.id,
      repo_full_name: repo,
      ...more,
    });
  }

  async deliveries(appId: string): Promise<V1AppDelivery[]> {
    return (await this.bench.api('GET', `apps/${appId}/deliveries?limit=200`)).body.data as V1AppDelivery[];
  }

  async builds(appId: string): Promise<TestAnswer['body'][]> {
    return (await this.bench.api('GET', `apps/${appId}/builds?limit=200`)).body.data;
  }

  async close(): Promise<void> {
    await this.bench.close();
    this.relay.closeAllConnections();
    await new Promise((resolve) => this.relay.close(resolve));
    await this.host.stop();
  }
}
