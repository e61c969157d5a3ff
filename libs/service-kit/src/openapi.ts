import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { DocumentBuilder, type OpenAPIObject, SwaggerModule } from '@nestjs/swagger';
import { EmbeddedBus } from '@nebo/bus';
import { IdentitySigner } from '@nebo/contracts';
import { FolderBlobStore } from '@nebo/persistence';
import { Figures } from '@nebo/telemetry';
import { pino } from 'pino';
import type { ServiceDefinition } from './boot.js';
import { Config } from './config.js';
import { KitModule } from './kit.module.js';
import { type Runtime, Targets } from './runtime.js';
import { MasterKey } from './secrets.js';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type JsonObject = { [key: string]: Json };

/** What one contract document is made of. */
export interface ContractPlan {
  title: string;
  description: string;
  definitions: readonly ServiceDefinition[];
}

/** Services are only looked at here: nothing connects before a first query. */
function idleRuntime(): Runtime {
  const masterKey = new MasterKey(Buffer.alloc(32));
  return {
    config: new Config({}),
    home: '/nonexistent',
    log: pino({ level: 'silent' }),
    masterKey,
    signer: new IdentitySigner(masterKey.derive('identity')),
    bus: new EmbeddedBus(),
    figures: new Figures(),
    blobs: new FolderBlobStore('/nonexistent'),
    blobsOf: () => new FolderBlobStore('/nonexistent'),
    targets: new Targets(),
    databaseUrl: () => 'postgres://nobody@127.0.0.1:1/none',
  };
}

/**
 * The contract as the services' controllers declare it, in one OpenAPI 3.1 document: paths without the `/v1` of the base
 * address, one operation id per path, sorted so that the committed file changes only where the contract does.
 * @throws Error when two operations share an id or two services disagree about a record
 */
export async function contractDocument({
  title,
  description,
  definitions,
}: ContractPlan): Promise<JsonObject> {
  const paths: JsonObject = {};
  const schemas: JsonObject = {};
  const runtime = idleRuntime();
  for (const definition of definitions) {
    const document = await documentOf(definition, runtime);
    collectPaths(definition.name, document, paths);
    for (const [name, schema] of Object.entries(
      (document.components?.schemas ?? {}) as unknown as JsonObject,
    )) {
      const clean = cleaned(schema);
      if (schemas[name] && JSON.stringify(schemas[name]) !== JSON.stringify(clean)) {
        throw new Error(`${definition.name} declares ${name} differently from another service`);
      }
      schemas[name] = clean;
    }
  }
  await runtime.bus.close();
  return {
    openapi: '3.1.0',
    info: { title, version: '1.0.0', description },
    servers: [{ url: '/v1' }],
    security: [{ bearer: [] }],
    paths: sorted(paths),
    components: {
      schemas: sorted(schemas),
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        ...(usesKeyHeader(paths) ? { key_header: { type: 'apiKey', in: 'header', name: 'x-api-key' } } : {}),
      },
    },
  };
}

const usesKeyHeader = (paths: JsonObject): boolean => JSON.stringify(paths).includes('"key_header"');

async function documentOf(definition: ServiceDefinition, runtime: Runtime): Promise<OpenAPIObject> {
  const app = await NestFactory.create<NestFastifyApplication>(
    KitModule.forService(definition, runtime),
    new FastifyAdapter(),
    {
      logger: false,
      abortOnError: false,
    },
  );
  // An operation's own tag only: the generator would add the controller's name.
  return SwaggerModule.createDocument(app, new DocumentBuilder().setOpenAPIVersion('3.1.0').build(), {
    autoTagControllers: false,
  });
}

function collectPaths(service: string, document: OpenAPIObject, paths: JsonObject): void {
  const ids = new Set<string>();
  for (const item of Object.values(paths) as JsonObject[]) {
    for (const operation of Object.values(item) as JsonObject[]) ids.add(operation['operationId'] as string);
  }
  for (const [fullPath, item] of Object.entries(document.paths)) {
    if (!fullPath.startsWith('/v1/')) continue;
    const path = fullPath.slice(3);
    for (const [verb, raw] of Object.entries(item as unknown as JsonObject)) {
      const operation = { ...(cleaned(raw) as JsonObject) };
      const flat = operation['x-nebo-flat'] as { id: string | null; tag: string };
      delete operation['x-nebo-flat'];
      if (flat.id !== null && !path.startsWith('/projects/')) {
        operation['operationId'] = flat.id;
        operation['tags'] = [flat.tag];
      }
      const id = operation['operationId'] as string;
      if (ids.has(id)) throw new Error(`two operations are called ${id}`);
      ids.add(id);
      operation['x-nebo-service'] = service;
      if (operation['x-nebo-public'] === true) operation['security'] = [];
      operation['parameters'] = parametersOf(operation, path);
      const entry = (paths[path] ??= {}) as JsonObject;
      entry[verb] = sorted(operation);
    }
  }
}

/** Exactly the parameters of this path: a handler with two paths declares those of both. */
function parametersOf(operation: JsonObject, path: string): Json[] {
  const declared = ((operation['parameters'] ?? []) as JsonObject[]).filter(
    (parameter) => parameter['in'] === 'query',
  );
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name: name!,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
  return [...inPath, ...declared];
}

/** Without the empty texts and the wrappers that the generator adds. */
function cleaned(value: Json): Json {
  if (Array.isArray(value)) return value.map(cleaned);
  if (value === null || typeof value !== 'object') return value;
  const out: JsonObject = {};
  for (const [key, item] of Object.entries(value)) {
    if ((key === 'description' || key === 'summary') && item === '') continue;
    out[key] = cleaned(item);
  }
  const all = out['allOf'];
  if (Array.isArray(all) && all.length === 1 && Object.keys(out).length === 1) return all[0]!;
  return out;
}

function sorted(object: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1)));
}
