import { ApiProperty } from '@nestjs/swagger';
import { AnyObjectField, BoolField, EnumField, IntField, StrField } from '../fields.js';

/**
 * Body of a response, as far as this service gives its fields a meaning; others are ignored. It documents: the router reads
 * bodies itself, because a client's new field must not be refused here.
 */
export class CreateResponseRequest {
  @StrField({ description: 'Id of a model of the catalogue' })
  model!: string;
  @ApiProperty({
    oneOf: [{ type: 'string' }, { type: 'array', items: { type: 'object', additionalProperties: true } }],
    description: 'A text, or the whole history as items',
  })
  input!: string | object[];
  @StrField({ nullable: true, optional: true })
  instructions?: string | null;
  @BoolField({ default: false })
  stream?: boolean;
  @BoolField({
    nullable: true,
    optional: true,
    description: 'Responses are never stored; `false` also asks for sealed copies of the reasoning',
  })
  store?: boolean | null;
  @IntField({
    nullable: true,
    optional: true,
    min: 1,
    description: 'Output ceiling in tokens; 32000 when absent',
  })
  max_output_tokens?: number | null;
  @AnyObjectField({ optional: true, description: '`effort`: none, minimal, low, medium, high, xhigh, max' })
  reasoning?: object;
  @AnyObjectField({ optional: true, description: '`format`: text, json_object or json_schema' })
  text?: object;
  @ApiProperty({
    type: 'array',
    items: { type: 'object', additionalProperties: true },
    required: false,
    description: 'Functions, free-input tools (`custom`) and namespaces of both; hosted tools are left out',
  })
  tools?: object[];
  @ApiProperty({
    type: 'array',
    items: { type: 'string' },
    required: false,
    description: '`reasoning.encrypted_content`: sealed copies of the reasoning',
  })
  include?: string[];
}

/** A plain response; with `stream: true` the answer is a stream of events instead. */
export class ModelResponse {
  @StrField()
  id!: string;
  @StrField()
  object!: string;
  @IntField({ description: 'Unix seconds' })
  created_at!: number;
  @EnumField(['completed', 'incomplete'])
  status!: string;
  @StrField()
  model!: string;
  @ApiProperty({
    type: 'array',
    items: { type: 'object', additionalProperties: true },
    description: 'Items: reasoning with its text in `summary`, message, function_call, custom_tool_call',
  })
  output!: object[];
  @AnyObjectField({ nullable: true, description: '`reason` of an incomplete response' })
  incomplete_details!: object | null;
  @AnyObjectField({ nullable: true, description: 'Token counters' })
  usage!: object | null;
  @BoolField({ description: 'Always false' })
  store!: boolean;
}
