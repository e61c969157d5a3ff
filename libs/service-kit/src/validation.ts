import { type ArgumentMetadata, Injectable, type PipeTransform } from '@nestjs/common';
import { plainToInstance } from 'class-transformer';
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
  whitelistValidation: 'extra_forbidden',
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
    // Defaults of the class stand for absent fields.
    const instance = plainToInstance(metatype, value ?? {}, { exposeDefaultValues: true }) as object;
    const errors = await validate(instance, {
      whitelist: true,
      forbidNonWhitelisted: type === 'body' && Reflect.getMetadata(closedMetadata, metatype) === true,
      forbidUnknownValues: false,
    });
    if (errors.length > 0)
      throw validationError(errors.flatMap((error) => fieldErrors(error, [type], value)));
    // PostgreSQL's text holds no NUL; let through, it would come back as a failure of ours.
    const nul = pathOfNul(instance, [type]);
    if (nul)
      throw validationError([{ loc: nul, msg: 'must not contain a NUL character', type: 'value_error' }]);
    return instance;
  }
}

function pathOfNul(value: unknown, path: (string | number)[]): (string | number)[] | null {
  if (typeof value === 'string') return value.includes('\0') ? path : null;
  if (value === null || typeof value !== 'object') return null;
  for (const [key, item] of Object.entries(value)) {
    const found = key.includes('\0')
      ? path
      : pathOfNul(item, [...path, Array.isArray(value) ? Number(key) : key]);
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
  const msg =
    constraint === 'whitelistValidation'
      ? 'there is no such field'
      : message!.replace(`${error.property} `, '');
  return [{ loc, msg, type: types[constraint] ?? 'value_error' }, ...nested];
}
