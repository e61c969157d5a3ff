import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { OperationTable, type ContractDocument } from '@nebo/contracts';
import { root } from './root.js';

interface Contract extends ContractDocument {
  components: { schemas: Record<string, object> };
}

/** Reads a committed contract. */
export const readContract = (name: 'v1' | 'inference'): Contract =>
  JSON.parse(readFileSync(join(root, `libs/contracts/openapi/${name}.json`), 'utf8')) as Contract;

/** Checks answers against the contract: status declared or one of the common errors, body as its schema says. */
export class ContractCheck {
  private readonly table: OperationTable;
  private readonly ajv = new Ajv2020({ strict: false, allErrors: true });
  private readonly compiled = new Map<string, ValidateFunction>();
  /** Operations that were answered with success, to see what the suite leaves out. */
  readonly seen = new Set<string>();

  constructor(readonly contract: Contract) {
    this.table = new OperationTable(contract);
    (addFormats as unknown as (ajv: Ajv2020) => void)(this.ajv);
    this.ajv.addSchema({ $id: 'contract', components: contract.components });
  }

  get operations() {
    return this.table.operations;
  }

  /** @throws Error saying how the answer differs from the contract */
  check(method: string, path: string, status: number, body: unknown): void {
    const match = this.table.match(method, path);
    if (match.found !== 'operation') {
      this.validate('ErrorBody', body);
      return;
    }
    const { operation } = match;
    if (status < 300) this.seen.add(operation.id);
    const declared = (this.contract.paths[operation.path]![method.toLowerCase()]!.responses ?? {}) as Record<
      string,
      { content?: Record<string, { schema?: { $ref?: string } }> }
    >;
    if (status >= 200 && status < 300 && !declared[status])
      throw new Error(`${operation.id} answered ${status}, which its contract does not declare`);
    const ref = declared[status]?.content?.['application/json']?.schema?.$ref;
    if (ref) this.validate(ref.slice(ref.lastIndexOf('/') + 1), body);
    else if (status >= 400) this.validate('ErrorBody', body);
  }

  private validate(schema: string, body: unknown): void {
    let validate = this.compiled.get(schema);
    if (!validate) {
      // Errors have one shape everywhere; the contract names it only where it is declared.
      const errorBody = {
        type: 'object',
        required: ['error'],
        properties: { error: { type: 'object', required: ['code', 'message'] } },
      };
      validate = this.ajv.compile(
        schema === 'ErrorBody' ? errorBody : { $ref: `contract#/components/schemas/${schema}` },
      );
      this.compiled.set(schema, validate);
    }
    if (!validate(body))
      throw new Error(
        `${schema}: ${this.ajv.errorsText(validate.errors)} in ${JSON.stringify(body)?.slice(0, 800)}`,
      );
  }
}

/** An answer of the API. */
export interface ApiAnswer {
  status: number;
  headers: Headers;
  // Tests read whatever came.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  body: any;
  text: string;
}

export interface ApiOptions {
  body?: unknown;
  headers?: Record<string, string>;
  /** Bytes instead of JSON. */
  raw?: Uint8Array;
}

/** A client of the control API that checks every answer against the contract. */
export class Api {
  constructor(
    readonly baseUrl: string,
    readonly key: string | null,
    readonly check: ContractCheck,
  ) {}

  as(key: string | null): Api {
    return new Api(this.baseUrl, key, this.check);
  }

  async call(method: string, path: string, { body, headers = {}, raw }: ApiOptions = {}): Promise<ApiAnswer> {
    const answer = await fetch(`${this.baseUrl}${path}`, {
      method,
      headers: {
        ...(this.key ? { authorization: `Bearer ${this.key}` } : {}),
        ...(body !== undefined ? { 'content-type': 'application/json' } : {}),
        ...headers,
      },
      ...(raw ? { body: raw as never } : body !== undefined ? { body: JSON.stringify(body) } : {}),
    });
    const text = await answer.text();
    const isJson = (answer.headers.get('content-type') ?? '').includes('json');
    const parsed: unknown = isJson && text ? JSON.parse(text) : undefined;
    this.check.check(method, path.split('?')[0]!, answer.status, parsed);
    return { status: answer.status, headers: answer.headers, body: parsed, text };
  }

  get = (path: string, options?: ApiOptions) => this.call('GET', path, options);
  post = (path: string, body?: unknown, options?: ApiOptions) =>
    this.call('POST', path, { ...options, body });
  patch = (path: string, body: unknown) => this.call('PATCH', path, { body });
  delete = (path: string) => this.call('DELETE', path);
}
