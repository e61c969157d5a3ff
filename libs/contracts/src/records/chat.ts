import { AnyObjectField, BoolField, IntField, StrField } from '../fields.js';
import { ApiProperty } from '@nestjs/swagger';

/**
 * Body of a chat completion, as far as this service gives its fields a meaning; others are passed on or ignored. It documents:
 * the router reads bodies itself, because a vendor's field must not be refused here.
 */
export class ChatCompletionRequest {
  @StrField({ description: 'Id of a model of the catalogue' })
  model!: string;
  @ApiProperty({
    type: 'array',
    items: { type: 'object', additionalProperties: true },
    description: 'Messages with `role` and `content`',
  })
  messages!: object[];
  @BoolField({ default: false })
  stream?: boolean;
  @AnyObjectField({ optional: true, description: '`include_usage`: a last chunk with the counters' })
  stream_options?: object;
  @IntField({
    nullable: true,
    optional: true,
    min: 1,
    description: 'Output ceiling in tokens; 4096 when absent',
  })
  max_tokens?: number | null;
  @IntField({ nullable: true, optional: true, min: 1 })
  max_completion_tokens?: number | null;
  @StrField({ nullable: true, optional: true, description: 'none, minimal, low, medium, high, xhigh, max' })
  reasoning_effort?: string | null;
  @ApiProperty({ type: 'array', items: { type: 'object', additionalProperties: true }, required: false })
  tools?: object[];
}

/** A plain chat completion; with `stream: true` the answer is a stream of events instead. */
export class ChatCompletion {
  @StrField()
  id!: string;
  @StrField()
  object!: string;
  @IntField({ description: 'Unix seconds' })
  created!: number;
  @StrField()
  model!: string;
  @ApiProperty({ type: 'array', items: { type: 'object', additionalProperties: true } })
  choices!: object[];
  @AnyObjectField({ description: 'Token counters' })
  usage!: object;
}
