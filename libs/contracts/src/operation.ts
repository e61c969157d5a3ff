import { applyDecorators, HttpCode, SetMetadata } from '@nestjs/common';
import { RouteConfig } from '@nestjs/platform-fastify';
import {
  ApiBody,
  ApiConsumes,
  ApiExtension,
  ApiExtraModels,
  ApiOperation,
  ApiParam,
  ApiQuery,
  ApiResponse,
  ApiSecurity,
  ApiTags,
  type ApiQueryOptions,
  getSchemaPath,
} from '@nestjs/swagger';
import { ErrorBody, HttpValidationErrorBody } from './records/errors.js';

/** Which thing of the path a permission is asked for. */
export type OperationResource =
  /** Any live key, no action needed. */
  | 'key'
  /** The account as a whole: only a policy for `*` matches. */
  | 'account'
  /** A top-level list: answered with what is visible. */
  | 'list'
  /** The kind of a path parameter. */
  | 'project'
  | 'app'
  | 'vm'
  | 'vpc'
  | 'floating_ip'
  | 'dns_zone'
  | 'ssh_key';

/** What an operation says of itself; drives routing, policy, the command line's checks and the documentation. */
export interface OperationSpec {
  /** Operation id of the contract; with `flatId` that of the path under a project. */
  id: string;
  /** Operation id of the twin without project. */
  flatId?: string;
  tag: string;
  /** Tag of the twin without project, where the contract differs. */
  flatTag?: string;
  summary: string;
  /** All of them are needed. Empty: a live key is enough. */
  permission: string | readonly string[];
  resource: OperationResource;
  /** No key is needed. */
  isPublic?: boolean;
  /** The key may also stand in `x-api-key`, as clients of the messages format send it. */
  takesKeyHeader?: boolean;
  /** The success status. */
  status?: number;
  /** Body of the success answer; absent for 204. */
  answer?: new () => object;
  /** The success answer is a stream of server-sent events; with `answer` it is one where the body asks for it. */
  stream?: boolean;
  /** Media types of a success answer that is a file, streamed, instead of a record. */
  media?: readonly string[];
  /** Statuses of refusals beside the common ones. */
  errors?: Readonly<Record<number, string>>;
  /** Body of all refusals where it is not the control API's. */
  errorBody?: new () => object;
  body?: new () => object;
  /** The body is optional, and may also be null. */
  bodyOptional?: boolean;
  /** Media type of a body that is not JSON. */
  upload?: string;
  query?: ApiQueryOptions[];
}

/**
 * The refusals that any operation may answer with, all of one body. Declared one by one with a status and a schema, the form
 * that client generators of all ages read: without them a generated client has an error's status only.
 */
export const commonErrors: Readonly<Record<number, string>> = {
  400: 'The request could not be read',
  401: 'The key is missing, unknown, revoked or disabled',
  402: 'The balance does not suffice',
  403: 'The key lacks the permission',
  404: 'There is no such thing, or it is not visible to the key',
  405: 'The path has no such method',
  409: 'The state of the thing forbids it',
  413: 'The body is too large',
  415: 'The body has the wrong content type',
  429: 'Too many requests; wait as Retry-After says',
  503: 'A part that the answer needs is away; try again',
};

/** Metadata key under which a handler's spec is kept for the kit (content types, audit). */
export const operationMetadata = 'nebo:operation';

/**
 * Declares a handler as an operation of the contract: its ids, permission, status, body and answer in one place.
 */
export function Operation(spec: OperationSpec): MethodDecorator {
  const status = spec.status ?? 200;
  const permissions = typeof spec.permission === 'string' ? [spec.permission] : [...spec.permission];
  const decorators: MethodDecorator[] = [
    SetMetadata(operationMetadata, spec),
    // Metrics name the operation; an upload's media type the kit lets through to the handler as a stream.
    RouteConfig({ operation: spec.id, ...(spec.upload ? { upload: spec.upload } : {}) }),
    HttpCode(status),
    ApiTags(spec.tag),
    ApiOperation({ operationId: spec.id, summary: spec.summary }),
    ApiExtension('x-nebo-permission', permissions),
    ApiExtension('x-nebo-resource', spec.resource),
    ...(spec.isPublic ? [ApiExtension('x-nebo-public', true)] : []),
    ...(spec.takesKeyHeader ? [ApiSecurity('bearer'), ApiSecurity('key_header')] : []),
    ApiExtension('x-nebo-flat', { id: spec.flatId ?? null, tag: spec.flatTag ?? spec.tag }),
    ...success(spec, status),
    ApiResponse({
      status: 422,
      description: 'Validation failed',
      type: spec.errorBody ?? HttpValidationErrorBody,
    }),
    ...Object.entries({ ...commonErrors, ...spec.errors }).map(([status, description]) =>
      ApiResponse({ status: Number(status), description, type: spec.errorBody ?? ErrorBody }),
    ),
  ];
  if (spec.body) decorators.push(ApiBody({ type: spec.body, required: !spec.bodyOptional }));
  if (spec.upload) {
    decorators.push(
      ApiConsumes(spec.upload),
      ApiBody({ required: true, schema: { type: 'string', format: 'binary' } }),
      ApiExtension('x-nebo-upload', spec.upload),
    );
  }
  for (const query of spec.query ?? []) decorators.push(ApiQuery({ required: false, ...query }));
  return applyDecorators(...decorators);
}

function success({ stream, answer, media }: OperationSpec, status: number): MethodDecorator[] {
  if (media) {
    const content = Object.fromEntries(media.map((type) => [type, { schema: { type: 'string' } } as const]));
    return [ApiResponse({ status, description: 'Success', content })];
  }
  if (!stream) return [ApiResponse({ status, description: 'Success', ...(answer ? { type: answer } : {}) })];
  return [
    ...(answer ? [ApiExtraModels(answer)] : []),
    ApiResponse({
      status,
      description: answer ? 'Success, or server-sent events' : 'Server-sent events',
      content: {
        ...(answer ? { 'application/json': { schema: { $ref: getSchemaPath(answer) } } } : {}),
        'text/event-stream': { schema: { type: 'string' } },
      },
    }),
  ];
}

/** Path parameters are plain strings in the contract. */
export function PathParams(...names: string[]): MethodDecorator {
  return applyDecorators(...names.map((name) => ApiParam({ name, type: String })));
}
