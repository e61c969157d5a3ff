import type {
  ContractTable,
  FieldType,
  TableAnswer,
  TableBody,
  TableField,
  TableOperation,
  TableRecord,
} from './table.js';

interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  nullable?: boolean;
  enum?: unknown[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  default?: unknown;
  description?: string;
  title?: string;
}

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  schema?: Schema;
  description?: string;
}

interface Operation {
  operationId?: string;
  tags?: string[];
  summary?: string;
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content?: Record<string, { schema?: Schema }> };
  responses?: Record<string, { content?: Record<string, { schema?: Schema }> }>;
  'x-nebo-permission'?: string[] | string;
  /** Media type of a body that is a file. */
  'x-nebo-upload'?: string;
}

/** The part of an OpenAPI 3.1 document that is read. */
export interface OpenApiDocument {
  info?: { version?: string };
  paths?: Record<string, Record<string, unknown>>;
  components?: { schemas?: Record<string, Schema> };
}

const verbs = ['get', 'post', 'put', 'patch', 'delete'];

/**
 * An OpenAPI document as the table that the command line checks against.
 * @throws Error when it is not a contract at all
 */
export function compactContract(document: OpenApiDocument): ContractTable {
  if (typeof document?.paths !== 'object' || document.paths === null)
    throw new Error('Not an OpenAPI document: it has no paths');
  const schemas = document.components?.schemas ?? {};
  const records: Record<string, TableRecord> = {};
  const operations: TableOperation[] = [];

  /** Adds a record, and those inside it, once. */
  const keep = (name: string): string => {
    if (records[name]) return name;
    const schema = flat(schemas[name] ?? {}, schemas);
    // Before its fields: a record may hold itself.
    const record: TableRecord = { fields: [] };
    records[name] = record;
    if (schema.additionalProperties === false) record.closed = true;
    for (const [field, of] of Object.entries(schema.properties ?? {}))
      record.fields.push(tableField(field, of, schema.required?.includes(field) ?? false));
    return name;
  };

  const typed = (schema: Schema): { type: FieldType; record?: string } => {
    if (schema.$ref) {
      const name = schema.$ref.split('/').pop()!;
      const target = schemas[name];
      // A named enumeration is a string, not a record.
      if (target && !target.properties && (target.enum || typeof target.type === 'string'))
        return typed({ ...target });
      return { type: 'object', record: keep(name) };
    }
    if (schema.allOf?.length === 1) return typed(schema.allOf[0]!);
    const type = (Array.isArray(schema.type) ? schema.type : [schema.type]).find(
      (one) => one && one !== 'null',
    );
    if (['string', 'integer', 'number', 'boolean', 'object', 'array'].includes(type ?? ''))
      return { type: type as FieldType };
    return { type: schema.properties ? 'object' : schema.enum ? 'string' : 'any' };
  };

  const tableField = (name: string, given: Schema, required: boolean): TableField => {
    const { schema, nullable } = withoutNull(given);
    const target = schema.$ref ? (schemas[schema.$ref.split('/').pop()!] ?? {}) : {};
    const found: TableField = { name, ...typed(schema) };
    if (found.type === 'array' && schema.items) found.items = typed(withoutNull(schema.items).schema);
    if (required) found.required = true;
    if (nullable) found.nullable = true;
    const values = (schema.enum ?? target.enum)?.filter((value) => typeof value === 'string');
    if (values && values.length > 0) found.values = values as string[];
    const min = schema.minimum ?? schema.minLength;
    const max = schema.maximum ?? schema.maxLength;
    if (min !== undefined) found.min = min;
    if (max !== undefined) found.max = max;
    const fallback = given.default ?? schema.default;
    if (fallback !== undefined) found.default = fallback;
    const about = given.description ?? schema.description;
    if (about) found.about = about;
    return found;
  };

  const recordOf = (schema: Schema | undefined, name: string): string | undefined => {
    if (!schema) return undefined;
    const { schema: bare } = withoutNull(schema);
    const { record } = typed(bare);
    if (record) return record;
    if (!bare.properties) return undefined;
    schemas[name] = bare;
    return keep(name);
  };

  for (const [written, item] of Object.entries(document.paths)) {
    const path = written.replace(/^\/v1(?=\/)/, '');
    const shared = (item['parameters'] as Parameter[] | undefined) ?? [];
    for (const verb of verbs) {
      const operation = item[verb] as Operation | undefined;
      if (!operation) continue;
      const id = operation.operationId ?? `${verb}_${path}`;
      const parameters = [...shared, ...(operation.parameters ?? [])];
      const permission = operation['x-nebo-permission'] ?? [];
      const body = bodyOf(operation, (schema) => recordOf(schema, `${id}_body`));
      operations.push({
        id,
        method: verb.toUpperCase(),
        path,
        // The framework may put the controller's name before the contract's own tag.
        section: operation.tags?.at(-1) ?? 'other',
        summary: operation.summary ?? '',
        permissions: typeof permission === 'string' ? [permission] : permission,
        query: parameters
          .filter((parameter) => parameter.in === 'query')
          .map(({ name, schema, required, description }) =>
            tableField(name, { ...schema, ...(description ? { description } : {}) }, required ?? false),
          ),
        ...(body ? { body } : {}),
        answers: answersOf(operation, (schema, status) => recordOf(schema, `${id}_${status}`)),
      });
    }
  }
  return { version: document.info?.version ?? '', operations, records };
}

function bodyOf(
  operation: Operation,
  recordOf: (schema: Schema | undefined) => string | undefined,
): TableBody | undefined {
  const content = operation.requestBody?.content;
  const type = operation['x-nebo-upload'] ?? (content && Object.keys(content)[0]);
  if (!content || !type) return undefined;
  const record = /json/.test(type) ? recordOf(content[type]?.schema) : undefined;
  return { type, required: operation.requestBody?.required ?? false, ...(record ? { record } : {}) };
}

function answersOf(
  operation: Operation,
  recordOf: (schema: Schema | undefined, status: string) => string | undefined,
): TableAnswer[] {
  return Object.entries(operation.responses ?? {})
    .filter(([status]) => status.startsWith('2'))
    .map(([status, { content }]) => {
      const type = content && Object.keys(content)[0];
      const record = type && /json/.test(type) ? recordOf(content[type]!.schema, status) : undefined;
      return { status, ...(type ? { type } : {}), ...(record ? { record } : {}) };
    });
}

/** Null may be written as a type, as a branch of anyOf, or as `nullable`. */
function withoutNull(schema: Schema): { schema: Schema; nullable: boolean } {
  const branches = schema.anyOf ?? schema.oneOf;
  if (branches) {
    const rest = branches.filter((branch) => branch.type !== 'null');
    const nullable = rest.length < branches.length || schema.nullable === true;
    if (rest.length === 1) return { schema: { ...rest[0]! }, nullable };
    return { schema: {}, nullable };
  }
  const nullable = schema.nullable === true || (Array.isArray(schema.type) && schema.type.includes('null'));
  return { schema, nullable };
}

/** A record that is put together of others (`allOf`) as one. */
function flat(schema: Schema, schemas: Record<string, Schema>): Schema {
  if (!schema.allOf) return schema;
  const parts = schema.allOf.map((part) =>
    flat(part.$ref ? (schemas[part.$ref.split('/').pop()!] ?? {}) : part, schemas),
  );
  return {
    ...schema,
    properties: Object.assign(
      {},
      ...parts.map((part) => part.properties ?? {}),
      schema.properties ?? {},
    ) as Record<string, Schema>,
    required: [...parts.flatMap((part) => part.required ?? []), ...(schema.required ?? [])],
  };
}
