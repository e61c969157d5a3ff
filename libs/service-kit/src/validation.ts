import { type ArgumentMetadata, Injectable, type PipeTransform } from '@nestjs/common';
import { fieldsOf, wholeNumber } from '@nebo/contracts';
import { validate, type ValidationError } from 'class-validator';
import { type FieldError, validationError } from './errors.js';

const closedMetadata = Symbol('nebo:closed');

/** Marks a body whose unknown fields are refused; others drop them. */
export function ClosedBody(): ClassDecorator {
  return (target) => Reflect.defineMetadata(closedMetadata, true, target);
}

/** Closes a body class of the contracts library. */
export function closeBody(...classes: object[]): void {
  for (const body of classes) Reflect.defineMetadata(closedMetadata, true, body);
}

const types: Record<string, string> = {
  isString: 'string_type',
  isInt: 'int_type',
  isBoolean: 'bool_type',
  isArray: 'list_type',
  isUuid: 'uuid_parsing',
  isIn: 'enum',
  min: 'greater_than_equal',
  max: 'less_than_equal',
  minLength: 'string_too_short',
  maxLength: 'string_too_long',
  matches: 'string_pattern_mismatch',
  arrayMaxSize: 'too_long',
  arrayMinSize: 'too_short',
  isObject: 'model_type',
  nestedValidation: 'model_type',
};

/** Checks bodies and queries against their DTO classes: 422 with every wrong field, no silent conversion of types. */
@Injectable()
export class ContractPipe implements PipeTransform {
  async transform(value: unknown, { type, metatype }: ArgumentMetadata): Promise<unknown> {
    if (!metatype || type === 'custom' || type === 'param' || isPlain(metatype)) return value;
    if (type === 'body') {
      if (value === undefined)
        throw validationError([{ loc: ['body'], msg: 'a body is required', type: 'missing' }]);
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        throw validationError([{ loc: ['body'], msg: 'the body must be a JSON object', type: 'model_type' }]);
      }
    }
    const given = (value ?? {}) as Readonly<Record<string, unknown>>;
    const instance = read(metatype as new () => object, given);
    const found = (await validate(instance, { forbidUnknownValues: false })).flatMap((error) =>
      fieldErrors(error, [type], given),
    );
    const isClosed = type === 'body' && Reflect.getMetadata(closedMetadata, metatype) === true;
    const errors = isClosed ? [...unknownFields(metatype as new () => object, given), ...found] : found;
    if (errors.length > 0) throw validationError(errors.slice(0, maxNamed));
    const bad = pathOfUnstorable(instance, [type]);
    if (bad) throw validationError([bad]);
    return instance;
  }
}

/**
 * A body whose handler first looks whether the ids of the path are there, since their 404 comes before the body's 422
 * (interfaces.md, 2); the gateway has looked for the first of them only. The parameter's own type must be `unknown`, otherwise
 * the global pipe is first.
 * @throws ApiError 422 with every wrong field
 */
export function readBody<T extends object>(of: new () => T, value: unknown): Promise<T> {
  return new ContractPipe().transform(value, { type: 'body', metatype: of }) as Promise<T>;
}

/** The same of a query. @throws ApiError 422 with every wrong parameter */
export function readQuery<T extends object>(of: new () => T, value: unknown): Promise<T> {
  return new ContractPipe().transform(value, { type: 'query', metatype: of }) as Promise<T>;
}

/** Most wrong fields that one answer names. */
const maxNamed = 50;

/**
 * A body as an instance of its class: the declared fields and nothing else, so that what a client adds costs nothing and
 * reaches nobody. Defaults of the class stand for absent fields.
 */
function read(of: new () => object, given: Readonly<Record<string, unknown>>): object {
  const instance = new of() as Record<string, unknown>;
  for (const { name, record, fromText } of fieldsOf(of).values()) {
    if (!Object.hasOwn(given, name)) continue;
    const value = given[name];
    instance[name] = record ? readRecords(record(), value) : fromText ? wholeNumber(value) : value;
  }
  return instance;
}

/** What is not a record stays as it is, so that validation refuses it. */
function readRecords(of: new () => object, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => (Array.isArray(item) ? item : readRecords(of, item)));
  return typeof value === 'object' && value !== null
    ? read(of, value as Readonly<Record<string, unknown>>)
    : value;
}

function unknownFields(of: new () => object, given: Readonly<Record<string, unknown>>): FieldError[] {
  const declared = fieldsOf(of);
  return Object.keys(given)
    .filter((name) => !declared.has(name))
    .map((name) => ({ loc: ['body', name], msg: 'there is no such field', type: 'extra_forbidden' }));
}

/**
 * The first text that PostgreSQL could not keep as it is: NUL it has none of, which would come back as a failure of ours;
 * half a surrogate pair is no UTF-8 and would silently become another character.
 */
function pathOfUnstorable(value: unknown, path: (string | number)[]): FieldError | null {
  if (typeof value === 'string') {
    if (value.includes('\0'))
      return { loc: path, msg: 'must not contain a NUL character', type: 'value_error' };
    return /\p{Surrogate}/u.test(value)
      ? { loc: path, msg: 'must not contain half a surrogate pair', type: 'value_error' }
      : null;
  }
  if (value === null || typeof value !== 'object') return null;
  for (const [key, item] of Object.entries(value)) {
    const found =
      pathOfUnstorable(key, path) ??
      pathOfUnstorable(item, [...path, Array.isArray(value) ? Number(key) : key]);
    if (found) return found;
  }
  return null;
}

function isPlain(metatype: unknown): boolean {
  return [String, Number, Boolean, Array, Object, Promise].includes(metatype as never);
}

function fieldErrors(error: ValidationError, path: (string | number)[], parent: unknown): FieldError[] {
  const key = /^\d+$/.test(error.property) ? Number(error.property) : error.property;
  const loc = [...path, key];
  const nested = (error.children ?? []).flatMap((child) => fieldErrors(child, loc, error.value));
  const missing = error.value === undefined && !Object.hasOwn((parent ?? {}) as object, error.property);
  if (missing && Object.keys(error.constraints ?? {}).length > 0) {
    return [{ loc, msg: 'field required', type: 'missing' }, ...nested];
  }
  const [constraint, message] = Object.entries(error.constraints ?? {})[0] ?? [];
  if (!constraint) return nested;
  const msg = message!.replace(`${error.property} `, '');
  return [{ loc, msg, type: types[constraint] ?? 'value_error' }, ...nested];
}
