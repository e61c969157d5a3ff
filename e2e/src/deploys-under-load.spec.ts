import { randomUUID } from 'node:crypto';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, type Installation } from '../harness/forms.js';
import { root, until } from '../harness/nebo.js';
import { type Change, judgeAnswers, judgeStreams } from '../harness/steady-judge.js';
import { SteadyLoad } from '../harness/steady-load.js';

/** Changes under load: 5 at 50 requests a second, 100 at 200 with NEBO_PROOF (`npm run proof -- deploys`). */
const size = Number(process.env['NEBO_PROOF'] || 5);
const isProof = size > 5;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
/** Time for an old replica's streams after the routes have left it, and for a new one to become ready. */
const drainMs = 1_500;
const readySeconds = 8;

/** An app that is changed in every way while visitors come: none of them notices. */
for (const { form, missing, start } of forms) {
  (missing ? describe.skip : describe)(`changes under load, ${form}`, () => {
    const changes = form === 'in one process' ? size : Math.ceil(size / 5);
    let nebo: Installation;
    let api: Api;
    let project: string;

    beforeAll(async () => {
      nebo = await start({
        NEBO_RATE_LIMIT: '0',
        NEBO_DRAIN_MS: `${drainMs}`,
        NEBO_RESTART_DELAY_MS: '100',
        NEBO_READY_TIMEOUT: `${readySeconds}`,
      });
      api = new Api(nebo.baseUrl, nebo.key, new ContractCheck(readContract('v1')));
      project = (await api.get('/projects')).body.data[0].id;
    }, 120_000);
    afterAll(() => nebo?.stop(), 60_000);

    it(
      'deploys, variables, sizes, counts and a version that never becomes ready: no request fails, none goes back',
      async () => {
        const app = await SteadyApp.create(api, project);
        const load = new SteadyLoad({ edgeUrl: nebo.edgeUrl, host: app.host }, isProof ? 200 : 50);
        load.start();
        const made: Change[] = [app.change('first deploy')];
        const cycle = app.steps(load);
        try {
          await until(() => load.answers.length > 20);
          for (let at = 0; at < changes; at++) {
            const step = cycle[at % cycle.length]!;
            const change = app.change(step.name, step.replaces);
            made.push(change);
            await step.run(change);
          }
          // The last ones go while visitors still come.
          await pause(drainMs + 1_500);
        } finally {
          await load.stop();
        }
        const verdict = judgeAnswers(load.answers, made);
        expect(verdict.wrong).toEqual([]);
        expect(verdict.startsByChange).toEqual(made.map(({ starts }) => starts));
        expect(judgeStreams(load.streams, verdict.generations, drainMs)).toEqual([]);
        for (const kind of ['server-sent events', 'WebSocket'])
          expect(load.streams.filter((stream) => stream.kind === kind).length).toBeGreaterThan(1);
      },
      120_000 + changes * 30_000,
    );
  });
}

/** `fixtures/steady-server`, deployed, and the ways of changing it. */
class SteadyApp {
  private version = 1;
  private epoch = 0;
  private memory = 512;
  private goodBuild = '';

  private constructor(
    private readonly api: Api,
    private readonly id: string,
    readonly host: string,
  ) {}

  /** @returns it once it is live */
  static async create(api: Api, project: string): Promise<SteadyApp> {
    const name = `steady-${randomUUID().slice(0, 8)}`;
    const { body } = await api.post(`/projects/${project}/apps`, {
      name,
      source_type: 'upload',
      app_type: 'backend',
      readiness_path: '/ready',
      replica_count: 1,
    });
    const app = new SteadyApp(api, body.id, `${name}.apps.localhost`);
    await app.deploy();
    return app;
  }

  /** What its answers shall carry from now on. */
  change(name: string, replaces = true): Change {
    return {
      name,
      replaces,
      sentAt: performance.now(),
      version: `${this.version}`,
      epoch: this.epoch === 0 ? '' : `${this.epoch}`,
      starts: replaces ? 1 : 0,
    };
  }

  /**
   * One way of changing it each, settled when visitors see it. A change that makes new replicas `replaces`; how many answer
   * is in `starts`. Another way (a private network) is one entry more.
   */
  steps(load: SteadyLoad): { name: string; replaces: boolean; run(change: Change): Promise<void> }[] {
    /** Which starts have answered requests that were sent since. */
    const startsSince = (ms: number) =>
      new Set(
        load.answers.filter(({ sentAt, start }) => sentAt >= ms && start !== '').map(({ start }) => start),
      );
    const startsBefore = () => startsSince(0);
    return [
      {
        name: 'deploy',
        replaces: true,
        run: async (change) => {
          change.version = `${++this.version}`;
          await this.deploy();
          await until(() => load.answers.some(({ version }) => version === change.version));
        },
      },
      {
        name: 'variable',
        replaces: true,
        run: async (change) => {
          change.epoch = `${++this.epoch}`;
          const body = { name: 'EPOCH', value: change.epoch };
          expect((await this.api.post(`/apps/${this.id}/env`, body)).status).toBe(201);
          await until(() => load.answers.some(({ epoch }) => epoch === change.epoch));
        },
      },
      {
        name: 'size',
        replaces: true,
        run: async () => {
          const before = startsBefore();
          this.memory = this.memory === 512 ? 768 : 512;
          await this.patch({ replica_memory_mb: this.memory });
          await until(() => [...startsBefore()].some((start) => !before.has(start)));
        },
      },
      {
        name: 'count to 2 and back',
        replaces: false,
        run: async (change) => {
          const before = startsBefore();
          await this.patch({ replica_count: 2 });
          await until(() => [...startsBefore()].some((start) => !before.has(start)));
          change.starts = 1;
          await pause(500);
          expect(startsSince(performance.now() - 400).size).toBe(2);
          await this.patch({ replica_count: 1 });
          await until(() => startsSince(performance.now() - 400).size === 1);
        },
      },
      {
        name: 'deploy that never becomes ready',
        replaces: false,
        run: async () => {
          const build = await this.upload(this.version + 1_000, false);
          const seen = await this.watch(build);
          expect(seen).toMatchObject({
            status: 'success',
            deploy_state: 'never_booted',
            boot_error: expect.stringMatching(
              `^The app was not ready within ${readySeconds} s: GET /ready answered 503`,
            ),
          });
          expect((await this.api.get(`/apps/${this.id}`)).body).toMatchObject({
            status: 'active',
            current_build_id: this.goodBuild,
            deploy_state: 'never_booted',
          });
          expect((await this.api.get(`/apps/${this.id}/builds/${this.goodBuild}`)).body).toMatchObject({
            deploy_state: 'live',
          });
        },
      },
    ];
  }

  private async deploy(): Promise<void> {
    const build = await this.upload(this.version, true);
    const { status, deploy_state, error, boot_error } = await this.watch(build);
    expect({ status, deploy_state, error, boot_error }).toEqual({
      status: 'success',
      deploy_state: 'live',
      error: null,
      boot_error: null,
    });
    this.goodBuild = build;
  }

  private async upload(version: number, ready: boolean): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'nebo-e2e-steady-'));
    await cp(join(root, 'e2e/fixtures/steady-server'), folder, { recursive: true });
    await writeFile(join(folder, 'version.json'), JSON.stringify({ version, ready }));
    const raw = await buffer((await packFolder(folder)).stream);
    await rm(folder, { recursive: true });
    const { status, body } = await this.api.call('POST', `/apps/${this.id}/deployments`, {
      raw,
      headers: { 'content-type': 'application/gzip' },
    });
    expect(status).toBe(202);
    return body.id;
  }

  /** A build once nothing more will come of it. */
  private async watch(build: string): Promise<Record<string, unknown>> {
    let seen: Record<string, unknown> = {};
    await until(async () => {
      seen = (await this.api.get(`/apps/${this.id}/builds/${build}?wait=live&timeout=20`)).body;
      const ends = ['live', 'never_booted', 'failing', 'stale_serving', 'build_failed'];
      return (
        ['error', 'cancelled'].includes(String(seen['status'])) || ends.includes(String(seen['deploy_state']))
      );
    }, 120_000).catch((error: unknown) => {
      throw new Error(`${String(error)}; the build is ${JSON.stringify(seen)}`);
    });
    return seen;
  }

  private async patch(body: object): Promise<void> {
    expect((await this.api.patch(`/apps/${this.id}`, body)).status).toBe(200);
  }
}
