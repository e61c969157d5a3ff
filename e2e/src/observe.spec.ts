import { randomUUID } from 'node:crypto';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freshDatabase, sharedPostgres, startOtlpReceiver, type OtlpReceiver } from '@nebo/test-kit';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Nebo, root, until } from '../harness/nebo.js';
import { freePorts } from '../harness/ports.mjs';

/** What an operator sees of the installation as `npm start` runs it: figures, traces, the audit log, the doctor. */
describe('what an operator sees', () => {
  let receiver: OtlpReceiver;
  let nebo: Nebo;
  let api: Api;
  let project: string;

  beforeAll(async () => {
    receiver = await startOtlpReceiver();
    nebo = await Nebo.start({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '200' });
    const [demo] = nebo.credentials.accounts;
    api = new Api(nebo.credentials.base_url, demo!.api_key, new ContractCheck(readContract('v1')));
    project = demo!.project_id;
  });
  afterAll(async () => {
    await nebo?.dispose();
    receiver?.stop();
  });

  it('an app made by a key stands in the audit log, and one trace leads from the door to that line', async () => {
    const traceId = randomUUID().replaceAll('-', '');
    const body = { name: `app-${randomUUID().slice(0, 8)}`, source_type: 'upload' };
    const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;
    const app = await api.post(`/projects/${project}/apps`, body, { headers: { traceparent } });
    expect(app.status).toBe(201);
    const lines = async () =>
      (await api.get('/audit-log?limit=100')).body.data.filter(
        (line: { resource: string }) => line.resource === `app:${app.body.id}`,
      );
    await until(async () => (await lines()).length > 0, 10_000);
    const [line, ...others] = await lines();
    expect(others).toEqual([]);
    const { key_id } = (await api.get('/account')).body;
    expect(line).toMatchObject({
      actor: key_id ? `key:${key_id}` : expect.stringMatching(/^key:/),
      action: 'apps_create_app',
      details: { name: body.name, project_id: project },
    });

    const mine = () => receiver.spans.filter((span) => span.traceId === traceId);
    const handled = 'event nebo.apps-builder.audit.written.v1';
    await until(() => mine().some(({ name }) => name === handled), 10_000);
    await until(() => mine().some(({ parentSpanId }) => parentSpanId === '00f067aa0ba902b7'), 10_000);
    const byId = new Map(mine().map((span) => [span.spanId, span]));
    const path: string[] = [];
    for (let at = mine().find(({ name }) => name === handled); at; at = byId.get(at.parentSpanId ?? ''))
      path.unshift(at.name);
    expect(path).toEqual([
      expect.stringMatching(/^control apps_create_app/),
      expect.stringMatching(/^POST \/v1\/.*apps$/),
      handled,
    ]);
  });

  it('/metrics shows the doors, every service with its outbox, and the edge', async () => {
    await api.get('/account');
    const { origin } = new URL(nebo.credentials.base_url);
    const text = await (await fetch(`${origin}/metrics`)).text();
    for (const name of [
      'identity-billing',
      'compute',
      'networking',
      'dns',
      'apps-builder',
      'inference-router',
    ])
      expect(text).toContain(`nebo_outbox_pending{service="${name}"}`);
    expect(text).toMatch(
      /nebo_http_requests_total\{service="identity-billing",method="GET",operation="account_\w+",status="200"\} \d/,
    );
    expect(text).toMatch(
      /nebo_http_request_seconds_bucket\{le="\+Inf",service="apps-builder",method="POST",operation="apps_create_app"\} 1/,
    );
    expect(text).toMatch(/nebo_gateway_requests_total\{/);
    expect(text).toMatch(/nebo_edge_routes \d/);
    expect(text).toContain('# TYPE nebo_ledger_differences gauge');
    expect(text).toMatch(/process_resident_memory_bytes \d/);
    const names = text.match(/^# TYPE \S+/gm)!;
    expect(new Set(names).size).toBe(names.length);
  });

  it('the doctor says what does the work and that all is ready', async () => {
    const found = (await nebo.admin('doctor')) as {
      ok: boolean;
      running: boolean;
      findings: { area: string; state: string; in_use: string }[];
    };
    expect(found).toMatchObject({ ok: true, running: true });
    const at = (area: string) => found.findings.find((finding) => finding.area === area)!;
    expect(at('installation').state).toBe('ok');
    expect(at('database').in_use).toContain(`${nebo.home}/postgres`);
    expect(at('inference').in_use).toContain('simulator');
    expect(at('traces').in_use).not.toBe('none');
  });

  it('the installation stops in time although the collector is gone', async () => {
    receiver.stop();
    await api.get('/account');
    const { ms, code } = await nebo.down();
    expect(code).toBe(0);
    expect(ms).toBeLessThan(10_000);
  });
});

describe('a service as a process of its own', () => {
  it('has its figures on its own port, and sends the spans that wait when it stops', async () => {
    const receiver = await startOtlpReceiver();
    const home = mkdtempSync(join(tmpdir(), 'nebo-alone-'));
    const [port] = await freePorts(1);
    const child = spawn(process.execPath, ['apps/compute/dist/main.js'], {
      cwd: root,
      env: {
        PATH: process.env.PATH,
        NEBO_HOME: home,
        NEBO_LOG_LEVEL: 'warn',
        NEBO_COMPUTE_PORT: `${port}`,
        DATABASE_URL: await freshDatabase(),
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
        // Nothing leaves by itself within the test.
        OTEL_BSP_SCHEDULE_DELAY: '60000',
      },
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    try {
      const url = `http://127.0.0.1:${port}`;
      await until(async () => (await fetch(`${url}/healthz`).catch(() => null))?.status === 200);
      const refused = await fetch(`${url}/internal/v1/regions`);
      expect(refused.status).toBe(401);
      expect(await (await fetch(`${url}/metrics`)).text()).toContain(
        'nebo_http_requests_total{service="compute",method="GET",operation="/internal/v1/regions",status="401"} 1',
      );
      expect(receiver.spans).toEqual([]);
      child.kill('SIGTERM');
      expect((await once(child, 'exit'))[0]).toBe(0);
      expect(receiver.services).toEqual(['compute']);
      // Beside it only what the service does by itself.
      const names = receiver.spans.map(({ name }) => name).filter((name) => !name.startsWith('step '));
      expect(names).toEqual(['GET /internal/v1/regions']);
    } finally {
      child.kill('SIGKILL');
      receiver.stop();
      rmSync(home, { recursive: true, force: true });
      await (await sharedPostgres()).stop();
    }
  });
});
