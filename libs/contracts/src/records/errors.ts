import { ApiProperty } from '@nestjs/swagger';

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
