import { ApiProperty } from '@nestjs/swagger';
import { AnyObjectField, BoolField, EnumField, IntField, RecordField, StrField } from '../fields.js';

/** What a message and the count of its tokens have in common. It documents: the router reads bodies itself. */
export class CountMessageTokensRequest {
  @StrField({ description: 'Id of a model of the catalogue' })
  model!: string;
  @ApiProperty({
    type: 'array',
    items: { type: 'object', additionalProperties: true },
    description:
      'Messages with `role` (user, assistant, system) and `content`: a text, or blocks of text, image, thinking, tool_use, tool_result',
  })
  messages!: object[];
  @ApiProperty({
    required: false,
    oneOf: [{ type: 'string' }, { type: 'array', items: { type: 'object', additionalProperties: true } }],
    description: 'A text, or text blocks',
  })
  system?: string | object[];
  @AnyObjectField({
    optional: true,
    description:
      '`enabled` with `budget_tokens` (up to 4096 low, up to 16384 medium, above high), `adaptive` with `output_config.effort`, or `disabled`; absent: the default of the model',
  })
  thinking?: object;
  @ApiProperty({
    type: 'array',
    items: { type: 'object', additionalProperties: true },
    required: false,
    description: 'Own tools with `input_schema`; server-side tools are taken out',
  })
  tools?: object[];
  @AnyObjectField({ optional: true, description: '`type` auto, any, tool with a `name`, or none' })
  tool_choice?: object;
}

/** Body of a message. Marks of `cache_control` and unknown fields are accepted and ignored. */
export class CreateMessageRequest extends CountMessageTokensRequest {
  @IntField({ min: 1, description: 'Output ceiling in tokens, reasoning included' })
  max_tokens!: number;
  @BoolField({ default: false })
  stream?: boolean;
  @AnyObjectField({
    optional: true,
    description: '`effort` for adaptive thinking, `format` for a JSON schema',
  })
  output_config?: object;
  @ApiProperty({ type: 'array', items: { type: 'string' }, required: false })
  stop_sequences?: string[];
}

/** Counters of a message. Tokens. */
export class MessageUsage {
  @IntField({ description: 'Without what was read from the cache' })
  input_tokens!: number;
  @IntField()
  cache_read_input_tokens!: number;
  @IntField({ description: 'Always 0: caching is automatic and writing to the cache is not billed' })
  cache_creation_input_tokens!: number;
  @IntField({ description: 'Reasoning included' })
  output_tokens!: number;
  @AnyObjectField({ description: '`thinking_tokens`: those of the output that were reasoning' })
  output_tokens_details!: object;
}

/** A message of a model; with `stream: true` the answer is a stream of events instead. */
export class ModelMessage {
  @StrField()
  id!: string;
  @EnumField(['message'])
  type!: 'message';
  @EnumField(['assistant'])
  role!: 'assistant';
  @StrField()
  model!: string;
  @ApiProperty({
    type: 'array',
    items: { type: 'object', additionalProperties: true },
    description: 'Blocks of thinking (with an empty signature), text and tool_use',
  })
  content!: object[];
  @EnumField(['end_turn', 'max_tokens', 'tool_use', 'refusal'])
  stop_reason!: string;
  @StrField({ nullable: true })
  stop_sequence!: string | null;
  @RecordField(() => MessageUsage)
  usage!: MessageUsage;
}

/** An estimate of a request's input. */
export class MessageTokenCount {
  @IntField({ min: 1 })
  input_tokens!: number;
}
