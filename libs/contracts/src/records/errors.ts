import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';

/** The machine-readable and the readable half of every error. */
export class ErrorInfo {
  @ApiProperty()
  code!: string;
  @ApiProperty()
  message!: string;
}

/** Body of every answer that is not 2xx. */
export class ErrorBody {
  @ApiProperty({ type: () => ErrorInfo })
  error!: ErrorInfo;
}

/** An error at `{ai_url}`, with what clients of the three formats and their programs read. */
export class InferenceErrorInfo {
  @ApiProperty({ description: '`billing_error` for every 402, otherwise by status' })
  type!: string;
  @ApiProperty()
  code!: string;
  @ApiProperty()
  message!: string;
  @ApiPropertyOptional({
    type: 'integer',
    description: '402: the `max_tokens` that would be covered now; 0 when not even the input is',
  })
  affordable_max_tokens?: number;
  @ApiPropertyOptional({ description: '5xx: what to tell the operator' })
  request_id?: string;
}

/** Body of an error at `{ai_url}`. */
export class InferenceErrorBody {
  @ApiProperty({ type: () => InferenceErrorInfo })
  error!: InferenceErrorInfo;
}

/** Body of an error below `/v1/messages`. */
export class MessagesErrorBody extends InferenceErrorBody {
  @ApiProperty({ enum: ['error'] })
  type!: 'error';
}

/** One wrong field. */
export class ValidationError {
  @ApiProperty({ type: 'array', items: { anyOf: [{ type: 'string' }, { type: 'integer' }] } })
  loc!: (string | number)[];
  @ApiProperty()
  msg!: string;
  @ApiProperty()
  type!: string;
}

/** Body of 422: the common envelope, and the fields in the form that older clients read. */
export class HttpValidationErrorBody {
  @ApiProperty({ type: () => ErrorInfo })
  error!: ErrorInfo;
  @ApiProperty({ type: () => ValidationError, isArray: true })
  detail!: ValidationError[];
}
Object.defineProperty(HttpValidationErrorBody, 'name', { value: 'HTTPValidationError' });
