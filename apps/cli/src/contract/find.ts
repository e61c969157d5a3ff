import { distance } from 'fastest-levenshtein';
import { isId } from '../core/ids.js';
import { pathParameters, type ContractTable, type TableOperation } from './table.js';

/** What a method and a path (or an operation id) are in the contract. */
export type Found =
  | { kind: 'operation'; operation: TableOperation; values: Record<string, string> }
  /** The path is there, with other methods. */
  | { kind: 'method'; methods: string[]; similar: TableOperation[] }
  | { kind: 'nothing'; similar: TableOperation[] };

/**
 * A path as it is looked up: one slash before, none behind, without `/v1` and query.
 * Git Bash on Windows turns `/apps` into a path of its own, so a path without its first slash is taken too.
 */
export function normalPath(text: string): string {
  const path = `/${text.split('?')[0]!.replace(/^\/+|\/+$/g, '')}`;
  return path === '/v1' ? '/' : path.replace(/^\/v1\//, '/');
}

/**
 * Finds an operation by method and path, or by its id.
 * @param method null when the user said none: GET for a path, its own for an operation id
 */
export function findOperation(table: ContractTable, method: string | null, text: string): Found {
  const named = table.operations.find(({ id }) => id === text);
  if (named) {
    if (method === null || method === named.method)
      return { kind: 'operation', operation: named, values: {} };
    return { kind: 'method', methods: [named.method], similar: [named] };
  }
  const path = normalPath(text);
  const wanted = method ?? 'GET';
  const hits = table.operations
    .map((operation) => ({ operation, values: match(operation.path, path) }))
    .filter(
      (hit): hit is { operation: TableOperation; values: Record<string, string> } => hit.values !== null,
    )
    // A fixed segment wins over an id: the fewer ids, the better.
    .sort((a, b) => Object.keys(a.values).length - Object.keys(b.values).length);
  const hit = hits.find(({ operation }) => operation.method === wanted);
  if (hit) return { kind: 'operation', ...hit };
  const similar = similarOperations(table, wanted, path);
  if (hits.length > 0)
    return { kind: 'method', methods: [...new Set(hits.map(({ operation }) => operation.method))], similar };
  return { kind: 'nothing', similar };
}

/** The ids in a path by their names, or null when the path does not have the template's form. */
function match(template: string, path: string): Record<string, string> | null {
  const parts = template.split('/');
  const given = path.split('/');
  if (parts.length !== given.length) return null;
  const values: Record<string, string> = {};
  for (const [index, part] of parts.entries()) {
    const text = given[index]!;
    if (!part.startsWith('{')) {
      if (part !== text) return null;
      continue;
    }
    if (text === '') return null;
    // `{app_id}` itself is filled in later, from the link or a field.
    if (text !== part && !/^\{.*\}$/.test(text)) values[part.slice(1, -1)] = decoded(text);
    else if (text !== part) return null;
  }
  return values;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The five operations most like what was asked, by path and by words. */
export function similarOperations(
  table: ContractTable,
  method: string,
  path: string,
  limit = 5,
): TableOperation[] {
  const shape = shapeOf(path);
  const asked = words(path);
  return table.operations
    .map((operation) => {
      const template = shapeOf(operation.path);
      const far = distance(shape, template) / Math.max(shape.length, template.length, 1);
      const own = words(`${operation.path} ${operation.id} ${operation.summary}`);
      const shared =
        asked.filter((word) => own.some((other) => close(word, other))).length / Math.max(1, asked.length);
      return { operation, score: (1 - far) * 0.6 + shared * 0.5 + (operation.method === method ? 0.05 : 0) };
    })
    .sort((a, b) => b.score - a.score || (a.operation.path < b.operation.path ? -1 : 1))
    .slice(0, limit)
    .map(({ operation }) => operation);
}

/** A path in which every id is the same sign, so that ids do not count as letters. */
function shapeOf(path: string): string {
  return path
    .split('/')
    .map((part) => (part.startsWith('{') || isId(part) ? '*' : part.toLowerCase()))
    .join('/');
}

function words(text: string): string[] {
  return text
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter((word) => word.length > 2)
    .map((word) => word.replace(/s$/, ''));
}

function close(a: string, b: string): boolean {
  return a === b || (a.length > 3 && b.length > 3 && distance(a, b) <= 1);
}

/** The path with its ids filled in. @param values every id of the template */
export function fillPath(template: string, values: Readonly<Record<string, string>>): string {
  return pathParameters(template).reduce(
    (path, name) => path.replace(`{${name}}`, encodeURIComponent(values[name]!)),
    template,
  );
}
