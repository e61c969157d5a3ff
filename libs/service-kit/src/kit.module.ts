import {
  Controller,
  type DynamicModule,
  Get,
  Header,
  Inject,
  Injectable,
  Module,
  type OnModuleDestroy,
  Res,
} from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { HttpAdapterHost } from '@nestjs/core';
import { Database } from '@nebo/persistence';
import { createMetrics, isConfigured, type Metrics } from '@nebo/telemetry';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { ServiceDefinition } from './boot.js';
import { EventsRunner } from './events-runner.js';
import { HealthRegistry } from './health.js';
import { pruneIdempotencyKeys } from './idempotency.js';
import { countRequests, traceRequests } from './observe.js';
import { Peers, SERVICE_NAME } from './peers.js';
import { METRICS, RUNTIME, type Runtime, schemaOf } from './runtime.js';

/** `GET /healthz` of every service: 200 when all required parts are well, 503 with what is missing before. */
@ApiExcludeController()
@Controller()
class HealthController {
  constructor(
    private readonly health: HealthRegistry,
    @Inject(SERVICE_NAME) private readonly service: string,
  ) {}

  @Get('healthz')
  @Header('cache-control', 'no-store')
  async healthz(@Res({ passthrough: true }) reply: FastifyReply) {
    const report = await this.health.report();
    reply.status(report.ok ? 200 : 503);
    return { service: this.service, ...report };
  }
}

/** `GET /metrics` of every service: figures of all services of the process. The gateway forwards no such path. */
@ApiExcludeController()
@Controller()
class MetricsController {
  constructor(@Inject(METRICS) private readonly metrics: Metrics) {}

  @Get('metrics')
  @Header('content-type', 'text/plain; version=0.0.4; charset=utf-8')
  read(): Promise<string> {
    return this.metrics.text();
  }
}

/** Counts the requests of the service, and opens a span for each where traces go somewhere. */
@Injectable()
class Observation {
  constructor(
    { httpAdapter }: HttpAdapterHost,
    @Inject(METRICS) metrics: Metrics,
    @Inject(SERVICE_NAME) service: string,
    @Inject(RUNTIME) { config }: Runtime,
  ) {
    // Before the routes: a hook reaches only what is registered after it.
    const fastify = httpAdapter.getInstance<FastifyInstance>();
    countRequests(fastify, metrics);
    if (isConfigured(config.env)) traceRequests(fastify, service);
  }
}

/** Keeps the tables of the kit small: answers kept for repeated requests go after a day. */
@Injectable()
class Housekeeping implements OnModuleDestroy {
  private readonly timer: NodeJS.Timeout;

  constructor(database: Database, @Inject(RUNTIME) runtime: Runtime) {
    this.timer = setInterval(() => {
      pruneIdempotencyKeys(database).catch((err: unknown) =>
        runtime.log.warn({ err }, 'housekeeping failed'),
      );
    }, 3_600_000).unref();
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }
}

/** Ends the database connections after everything that uses them. */
@Injectable()
class DatabaseCloser {
  constructor(private readonly database: Database) {}

  async onApplicationShutdown(): Promise<void> {
    await this.database.close();
  }
}

/** What the kit gives to every service: database, peers, events, health. */
@Module({})
export class KitModule {
  static forService(definition: ServiceDefinition, runtime: Runtime): DynamicModule {
    const schema = schemaOf(definition.name);
    const health = new HealthRegistry();
    const metrics = createMetrics(definition.name, runtime.figures);
    const database = new Database({
      url: runtime.databaseUrl(schema),
      schema,
      onError: (err) => runtime.log.warn({ err, service: definition.name }, 'database connection lost'),
    });
    health.add('postgres', async () => {
      await database.query('select 1');
      return { ok: true, required: true };
    });
    const shared: DynamicModule = {
      module: SharedModule,
      global: true,
      providers: [
        { provide: RUNTIME, useValue: runtime },
        { provide: SERVICE_NAME, useValue: definition.name },
        { provide: Database, useValue: database },
        { provide: HealthRegistry, useValue: health },
        { provide: METRICS, useValue: metrics },
        Observation,
        Peers,
        Housekeeping,
        DatabaseCloser,
        EventsRunner.provider(definition, runtime, database, metrics),
      ],
      controllers: [HealthController, MetricsController],
      exports: [RUNTIME, SERVICE_NAME, METRICS, Database, HealthRegistry, Peers],
    };
    return { module: KitModule, imports: [shared, definition.module] };
  }
}

@Module({})
class SharedModule {}
