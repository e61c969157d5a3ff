import 'reflect-metadata';
import { applyDecorators } from '@nestjs/common';
import { ApiProperty, ApiPropertyOptional, type ApiPropertyOptions } from '@nestjs/swagger';
import {
  ArrayMaxSize,
  ArrayMinSize,
  IsArray,
  IsBoolean,
  IsIn,
  IsInt,
  IsObject,
  IsOptional,
  IsString,
  IsUUID,
  Matches,
  Max,
  MaxLength,
  Min,
  MinLength,
  ValidateIf,
  ValidateNested,
} from 'class-validator';

/** What all field decorators take. */
export interface FieldOptions {
  /** May be null. */
  nullable?: boolean;
  /** May be absent; a field with a default is optional in a body. */
  optional?: boolean;
  default?: unknown;
  description?: string;
  example?: unknown;
}

/** What a reader of requests needs to know of one field; documentation and checks have their own metadata. */
export interface FieldFacts {
  name: string;
  /** The class of the record, or of the records of the list, that the field holds. */
  record?: () => new () => object;
  /** Query values are text: an integer is read from it. */
  fromText?: boolean;
}

const fieldsKey = Symbol('nebo:fields');

/** The declared fields of a body or query class by name, those of its parents included. Nothing else of a request is read. */
export function fieldsOf(of: new () => object): ReadonlyMap<string, FieldFacts> {
  return (
    (Reflect.getMetadata(fieldsKey, of.prototype as object) as Map<string, FieldFacts> | undefined) ??
    new Map()
  );
}

function noteField(facts: Omit<FieldFacts, 'name'>): PropertyDecorator {
  return (prototype, property) => {
    const name = String(property);
    const known = Reflect.getMetadata(fieldsKey, prototype) as Map<string, FieldFacts> | undefined;
    Reflect.defineMetadata(fieldsKey, new Map(known).set(name, { name, ...facts }), prototype);
  };
}

/**
 * One line documents a field and validates it. A nullable field accepts null and skips its checks for it; an optional
 * one may be absent, but unlike null only then.
 */
function field(
  options: FieldOptions,
  schema: ApiPropertyOptions,
  facts: Omit<FieldFacts, 'name'>,
  ...checks: PropertyDecorator[]
): PropertyDecorator {
  const { nullable = false, optional = false, description, example } = options;
  const hasDefault = options.default !== undefined;
  const api = {
    ...schema,
    ...(nullable ? { nullable: true } : {}),
    ...(description ? { description } : {}),
    ...(example !== undefined ? { example } : {}),
    ...(hasDefault ? { default: options.default } : {}),
  } as ApiPropertyOptions;
  return applyDecorators(
    noteField(facts),
    optional || hasDefault ? ApiPropertyOptional(api) : ApiProperty(api),
    ...(nullable ? [ValidateIf((_object, value) => value !== null)] : []),
    // class-validator's IsOptional also lets null through; a field that is not nullable must refuse it.
    ...(optional || hasDefault
      ? [nullable ? IsOptional() : ValidateIf((_object, value) => value !== undefined)]
      : []),
    ...checks,
  );
}

/** A string, with length limits in characters and a pattern; `rule` says the pattern in words. */
export function StrField(
  options: FieldOptions & {
    min?: number;
    max?: number;
    pattern?: RegExp;
    rule?: string;
    format?: string;
  } = {},
) {
  const { min, max, pattern, rule, format } = options;
  return field(
    options,
    {
      type: String,
      ...(min !== undefined ? { minLength: min } : {}),
      ...(max !== undefined ? { maxLength: max } : {}),
      ...(pattern ? { pattern: pattern.source } : {}),
      ...(format ? { format } : {}),
    } as ApiPropertyOptions,
    {},
    IsString(),
    ...(min !== undefined ? [MinLength(min)] : []),
    ...(max !== undefined ? [MaxLength(max)] : []),
    ...(pattern ? [Matches(pattern, rule ? { message: rule } : {})] : []),
  );
}

/** A string out of a closed set. */
export function EnumField(values: readonly string[], options: FieldOptions = {}) {
  return field(
    options,
    { type: String, enum: [...values] } as ApiPropertyOptions,
    {},
    IsString(),
    IsIn([...values]),
  );
}

/** An id of a resource; upper case is accepted and compared without case. */
export function IdField(options: FieldOptions = {}) {
  return field(options, { type: String } as ApiPropertyOptions, {}, IsUUID('all'));
}

/** Query text as an integer; anything else stays as it is, so that validation refuses it ("1e2", "1.5", ""). */
export function wholeNumber(value: unknown): unknown {
  return typeof value === 'string' && /^-?\d{1,15}$/.test(value) ? Number(value) : value;
}

/** An integer within limits; `fromText` for queries. */
export function IntField(options: FieldOptions & { min?: number; max?: number; fromText?: boolean } = {}) {
  const { min, max, fromText = false } = options;
  return field(
    options,
    {
      type: 'integer',
      ...(min !== undefined ? { minimum: min } : {}),
      ...(max !== undefined ? { maximum: max } : {}),
    } as ApiPropertyOptions,
    { fromText },
    IsInt(),
    ...(min !== undefined ? [Min(min)] : []),
    ...(max !== undefined ? [Max(max)] : []),
  );
}

/** True or false. */
export function BoolField(options: FieldOptions = {}) {
  return field(options, { type: Boolean } as ApiPropertyOptions, {}, IsBoolean());
}

/** A time in RFC 3339 with a zone. */
export function TimeField(options: FieldOptions & { declared?: boolean } = {}) {
  return field(
    options,
    { type: String, ...(options.declared ? { format: 'date-time' } : {}) } as ApiPropertyOptions,
    {},
    IsString(),
  );
}

/** A list of strings. */
export function StringsField(options: FieldOptions & { maxItems?: number; minItems?: number } = {}) {
  return field(
    options,
    { type: 'array', items: { type: 'string' } } as ApiPropertyOptions,
    {},
    IsArray(),
    IsString({ each: true }),
    ...(options.maxItems !== undefined ? [ArrayMaxSize(options.maxItems)] : []),
    ...(options.minItems !== undefined ? [ArrayMinSize(options.minItems)] : []),
  );
}

/** A list of records. */
export function ListField(of: () => new () => object, options: FieldOptions & { maxItems?: number } = {}) {
  return field(
    options,
    // The generator knows a lazy type by the name `type` of its function.
    { type: () => of(), isArray: true } as ApiPropertyOptions,
    { record: of },
    IsArray(),
    ...(options.maxItems !== undefined ? [ArrayMaxSize(options.maxItems)] : []),
    ValidateNested({ each: true }),
  );
}

/** A record inside a record. */
export function RecordField(of: () => new () => object, options: FieldOptions = {}) {
  return field(
    options,
    { type: () => of() } as ApiPropertyOptions,
    { record: of },
    // Without it a list of records would pass as one.
    IsObject(),
    ValidateNested(),
  );
}

/** An object of unknown fields. */
export function AnyObjectField(options: FieldOptions = {}) {
  return field(options, { type: 'object', additionalProperties: true } as ApiPropertyOptions, {});
}
