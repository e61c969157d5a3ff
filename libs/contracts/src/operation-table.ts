import type { OperationResource } from './operation.js';

/** One operation of the contract, as the gateway needs it. */
export interface TableOperation {
  id: string;
  method: string;
  /** Template without the prefix, e.g. `/apps/{app_id}`. */
  path: string;
  service: string;
  permissions: string[];
  resource: OperationResource;
  /** No key is needed. */
  isPublic: boolean;
  /** A list below a parent of the path: the service filters it. */
  isList: boolean;
  /** The answer is a stream of events. */
  isStream: boolean;
  /** Parameter names from left to right. */
  parameters: string[];
}

/** The part of an OpenAPI document that the table reads. */
export interface ContractDocument {
  paths: Record<string, Record<string, ContractOperation>>;
}

interface ContractOperation {
  operationId?: string;
  responses?: Record<string, { content?: Record<string, { schema?: { $ref?: string } }> }>;
  'x-nebo-service'?: string;
  'x-nebo-permission'?: string[];
  'x-nebo-resource'?: OperationResource;
  'x-nebo-public'?: boolean;
}

/** What a path is in the table. */
export type TableMatch =
  | { found: 'operation'; operation: TableOperation; ids: string[] }
  | { found: 'path'; allow: string[] }
  | { found: 'nothing' };

interface Node {
  fixed: Map<string, Node>;
  parameter: Node | undefined;
  methods: Map<string, TableOperation>;
}

const newNode = (): Node => ({ fixed: new Map(), parameter: undefined, methods: new Map() });
const verbs = ['get', 'post', 'put', 'patch', 'delete'];

/** Finds the operation of a method and path; built from the committed contract, so that routing cannot differ from it. */
export class OperationTable {
  readonly operations: TableOperation[] = [];
  private readonly root = newNode();

  constructor(document: ContractDocument) {
    for (const [path, item] of Object.entries(document.paths)) {
      for (const verb of verbs) {
        const operation = item[verb];
        if (operation) this.add(path, verb.toUpperCase(), operation);
      }
    }
  }

  private add(path: string, method: string, operation: ContractOperation): void {
    let node = this.root;
    const parameters: string[] = [];
    for (const segment of path.split('/').slice(1)) {
      if (segment.startsWith('{')) {
        parameters.push(segment.slice(1, -1));
        node = node.parameter ??= newNode();
      } else {
        const next = node.fixed.get(segment) ?? newNode();
        node.fixed.set(segment, next);
        node = next;
      }
    }
    const entry: TableOperation = {
      id: operation.operationId!,
      method,
      path,
      service: operation['x-nebo-service']!,
      permissions: operation['x-nebo-permission'] ?? [],
      resource: operation['x-nebo-resource'] ?? 'key',
      isPublic: operation['x-nebo-public'] ?? false,
      isList: Object.values(operation.responses ?? {}).some((response) =>
        response.content?.['application/json']?.schema?.$ref?.includes('/Page_'),
      ),
      isStream: Object.values(operation.responses ?? {}).some(
        ({ content }) => content?.['text/event-stream'] !== undefined,
      ),
      parameters,
    };
    node.methods.set(method, entry);
    this.operations.push(entry);
  }

  /** @param path without prefix and query; a fixed segment wins over a parameter */
  match(method: string, path: string): TableMatch {
    const ids: string[] = [];
    let node = this.root;
    for (const segment of path.split('/').slice(1)) {
      const fixed = node.fixed.get(segment);
      if (fixed) {
        node = fixed;
        continue;
      }
      if (!node.parameter || segment === '') return { found: 'nothing' };
      ids.push(segment);
      node = node.parameter;
    }
    const operation = node.methods.get(method);
    if (operation) return { found: 'operation', operation, ids };
    return node.methods.size > 0
      ? { found: 'path', allow: [...node.methods.keys()].sort() }
      : { found: 'nothing' };
  }
}
