/** The contract as the command line carries it: a compact table of operations. */
export interface ContractTable {
  /** `info.version` of the contract. */
  version: string;
  operations: TableOperation[];
  /** The records that operations take and answer, by name. */
  records: Record<string, TableRecord>;
}

export interface TableOperation {
  id: string;
  /** Upper case. */
  method: string;
  /** Template without `/v1`. */
  path: string;
  section: string;
  summary: string;
  /** All are needed; empty: a live key is enough. */
  permissions: string[];
  query: TableField[];
  body?: TableBody;
  answers: TableAnswer[];
}

export interface TableBody {
  /** Media type. */
  type: string;
  required: boolean;
  /** Name in `records`; absent for a body that is not described by fields. */
  record?: string;
}

export interface TableAnswer {
  status: string;
  /** Media type, absent for an answer without body. */
  type?: string;
  record?: string;
}

export interface TableRecord {
  fields: TableField[];
  /** Other fields are refused. */
  closed?: true;
}

export type FieldType = 'string' | 'integer' | 'number' | 'boolean' | 'object' | 'array' | 'any';

export interface TableField {
  name: string;
  type: FieldType;
  /** Of arrays: what is in them. */
  items?: { type: FieldType; record?: string };
  /** Of objects: their record. */
  record?: string;
  required?: true;
  nullable?: true;
  values?: string[];
  min?: number;
  max?: number;
  default?: unknown;
  about?: string;
}

/** The names of the ids in a template, from left to right. */
export function pathParameters(template: string): string[] {
  return [...template.matchAll(/\{([^}]+)\}/g)].map((match) => match[1]!);
}

/** True when the operation answers a stream of server-sent events. */
export function isStream(operation: TableOperation): boolean {
  return operation.answers.some((answer) => answer.type === 'text/event-stream');
}

/** True when the operation is a list in pages. */
export function isPaged(operation: TableOperation): boolean {
  const names = operation.query.map(({ name }) => name);
  return operation.method === 'GET' && names.includes('limit') && names.includes('offset');
}
