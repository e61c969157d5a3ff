import { isCompiledRouting } from '@nebo/routing';
import { Inject, Injectable } from '@nestjs/common';
import { say } from '@nebo/bus';
import type { ArtifactFacts, BlobRef, ImageFacts } from '@nebo/contracts';
import { Lifecycle, minutes, type Outcome, seconds, State, type StepContext, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { says } from '../events.js';
import { lockApp, makeRevision } from '../rollouts/rollout.rows.js';
import { cancelledOnRequest } from './build.rows.js';

/** A build as its life sees it. */
export interface LivingBuild {
  id: string;
  account_id: string;
  app_id: string;
  status: string;
  docker_image: string | null;
  generation: number;
  gone: boolean;
  observed_generation: number | null;
  observed_state: string | null;
  observed_reason: string | null;
  observed_facts: Partial<ArtifactFacts> | null;
  app_deleted: boolean;
}

type Final = 'success' | 'error' | 'cancelled';

/**
 * Life of a build. queued → building → success | error | cancelled. The region does the work and reports; a region that
 * vanishes cannot hold a build in either state for longer than its deadline.
 */
@Injectable()
export class BuildLifecycle extends Lifecycle<LivingBuild> {
  override readonly kind = 'build';

  constructor(@Inject(RUNTIME) private readonly runtime: Runtime) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<LivingBuild | null> {
    const [row] = await tx.query<LivingBuild>(
      `select b.id, b.account_id, b.app_id, b.status, b.docker_image, b.generation, b.gone, b.observed_generation, b.observed_state,
         b.observed_reason, b.observed_facts, a.deleted_at is not null as app_deleted
       from build b join app a on a.id = b.app_id where b.id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  @State({ deadline: minutes(30), onMissed: 'error' })
  queued(build: LivingBuild): Outcome {
    if (build.status === 'cancelled') return this.end();
    if (build.app_deleted) return this.go('cancelled');
    if (build.observed_state === null) return this.wait(Infinity, 'no region has begun it');
    return this.go('building', (tx) =>
      tx.query(
        "update build set status = 'building', started_at = now() where id = $1::uuid and status = 'queued'",
        [build.id],
      ),
    );
  }

  @State({ deadline: minutes(30), onMissed: 'error' })
  async building(build: LivingBuild): Promise<Outcome> {
    if (build.gone || build.app_deleted) return this.go('stopping', (tx) => this.stop(tx, build));
    switch (build.observed_state) {
      case 'success': {
        const problem = await this.artifactProblem(build);
        if (problem !== null) return this.fail(problem, 'error');
        return this.end((tx) => this.succeed(tx, build));
      }
      case 'error':
        return this.end((tx) => this.finish(tx, build, 'error', build.observed_reason ?? 'the build failed'));
      case 'cancelled':
        return this.go('cancelled');
      default:
        return this.wait(Infinity, 'the region has not reported its end');
    }
  }

  /** Somebody asked for the end; the region may still write its last lines. */
  @State({ deadline: seconds(15), onMissed: 'cancelled' })
  stopping(build: LivingBuild): Outcome {
    const stopped =
      build.observed_state !== 'building' && (build.observed_generation ?? 0) >= build.generation;
    return stopped ? this.go('cancelled') : this.wait(Infinity, 'the region has not stopped it');
  }

  @State()
  cancelled(build: LivingBuild): Outcome {
    const why = build.app_deleted ? 'the app was deleted' : cancelledOnRequest;
    return this.end((tx) => this.finish(tx, build, 'cancelled', why));
  }

  @State()
  error(build: LivingBuild, { reason }: StepContext): Outcome {
    return this.end((tx) => this.finish(tx, build, 'error', reason ?? 'the build failed'));
  }

  /** Why what the region calls a success cannot be served, or null. */
  private async artifactProblem(build: LivingBuild): Promise<string | null> {
    const { observed_facts: facts } = build;
    const artifact = facts?.artifact;
    if (!artifact || !/^[0-9a-f]{64}$/.test(artifact.sha256)) return 'the region reported no artifact';
    if (facts.artifact_kind !== 'static' && facts.artifact_kind !== 'server')
      return 'the region reported an artifact of an unknown kind';
    if (build.docker_image !== null) return this.imageProblem(facts);
    // Of a Dockerfile an image comes too, whose own words start it.
    const image = facts.image == null ? null : await this.imageProblem(facts);
    if (image !== null) return image;
    if (facts.artifact_kind === 'server' && !facts.start_command && facts.image == null)
      return 'the app has no command that starts it; set start_command';
    if (facts.routing && !isCompiledRouting(facts.routing))
      return 'the region reported rules of the routing file that cannot be read';
    if ((await this.runtime.blobs.has(artifact.sha256)) === null)
      return 'the artifact did not arrive from the region';
    return null;
  }

  /** The same for an image: its document and every layer must be here, since no registry is asked again. */
  private async imageProblem({
    image,
    artifact,
    artifact_kind,
  }: Partial<ArtifactFacts>): Promise<string | null> {
    if (artifact_kind !== 'server' || !isImageFacts(image)) return 'the region reported no image';
    for (const { sha256 } of [artifact!, ...image.layers])
      if ((await this.runtime.blobs.has(sha256)) === null)
        return 'a layer of the image did not arrive from the region';
    return null;
  }

  private async succeed(tx: Sql, build: LivingBuild): Promise<void> {
    const app = await lockApp(tx, build.app_id);
    if (app === null) return this.finish(tx, build, 'cancelled', 'the app was deleted');
    const facts = build.observed_facts as ArtifactFacts;
    await tx.query(
      `update build set artifact_sha256 = $2, artifact_bytes = $3::bigint, artifact_kind = $4, start_command = $5, stack = $6, routing = $7::jsonb,
         docker_image_digest = coalesce($8, docker_image_digest), image_layers = $9::text[]
       where id = $1::uuid`,
      [
        build.id,
        facts.artifact.sha256,
        facts.artifact.bytes,
        facts.artifact_kind,
        facts.start_command,
        facts.stack,
        facts.routing ? JSON.stringify(facts.routing) : null,
        // What was built here has no name by which anybody could pull it.
        build.docker_image === null ? null : (facts.image?.digest ?? null),
        facts.image?.layers.map(({ sha256 }) => sha256) ?? null,
      ],
    );
    const newer = await tx.query(
      `select 1 as newer from build where app_id = $1::uuid and status = 'success'
         and seq > (select seq from build where id = $2::uuid) limit 1`,
      [build.app_id, build.id],
    );
    // An older build that took longer must not replace what a newer one brought.
    if (newer.length > 0) return this.finish(tx, build, 'cancelled', 'overtaken by a newer build');
    await this.finish(tx, build, 'success', null);
    await makeRevision(tx, app.id, build.id, 'deploy');
    await wake(tx, 'rollout', app.id);
  }

  /** Writes the end once; what the region may still do for the build is called off. */
  private async finish(tx: Sql, build: LivingBuild, status: Final, error: string | null): Promise<void> {
    const { observed_facts: facts } = build;
    const source = await this.fetched(facts?.source);
    const [ended] = await tx.query<{ duration_ms: number | null }>(
      `update build set status = $2, error = $3, finished_at = now(),
         deploy_state = case $2 when 'success' then 'rolling' when 'error' then 'build_failed' else null end,
         duration_ms = coalesce($4::int, (extract(epoch from now() - started_at) * 1000)::int),
         -- A region that reported its end says itself when its log is whole; of another one nothing more is awaited.
         log_done = log_done or observed_state is null or observed_state = 'building',
         generation = generation + (observed_state is distinct from 'success' and observed_state is distinct from 'error' and not gone)::int,
         gone = gone or (observed_state is distinct from 'success' and observed_state is distinct from 'error'),
         -- What the region fetched from git: a rebuild uses the same bytes.
         source_bytes = case when source_sha256 is null then $6::bigint else source_bytes end,
         source_sha256 = coalesce(source_sha256, $5)
       where id = $1::uuid and status in ('queued', 'building') returning duration_ms`,
      [build.id, status, error, reported(facts?.duration_ms), source?.sha256 ?? null, source?.bytes ?? null],
    );
    if (!ended) return;
    const { duration_ms } = ended;
    await say(
      tx,
      says.buildFinished(
        { build_id: build.id, app_id: build.app_id, status, error, duration_ms },
        { account: build.account_id },
      ),
    );
  }

  /** The source that a region says to have stored, if it did. */
  private async fetched(source: BlobRef | undefined): Promise<BlobRef | null> {
    if (typeof source?.sha256 !== 'string' || !/^[0-9a-f]{64}$/.test(source.sha256)) return null;
    const bytes = await this.runtime.blobs.has(source.sha256);
    return bytes === null ? null : { sha256: source.sha256, bytes };
  }

  private async stop(tx: Sql, build: LivingBuild): Promise<void> {
    await tx.query(
      'update build set gone = true, generation = generation + 1 where id = $1::uuid and not gone',
      [build.id],
    );
  }
}

const isImageFacts = (image: ArtifactFacts['image']): image is ImageFacts =>
  /^sha256:[0-9a-f]{64}$/.test(String(image?.digest)) &&
  Array.isArray(image?.layers) &&
  image.layers.length <= 1_000 &&
  image.layers.every(({ sha256 }) => /^[0-9a-f]{64}$/.test(sha256));

const reported = (ms: unknown): number | null =>
  typeof ms === 'number' && Number.isSafeInteger(ms) && ms >= 0 && ms < 2 ** 31 ? ms : null;
