import { Injectable, type PipeTransform } from '@nestjs/common';
import { ContractPipe } from './validation.js';

/**
 * A body that may be absent or null and then counts as `{}` (clients send all three forms). The parameter's own type must
 * be `unknown`, otherwise the global pipe demands a body first.
 */
@Injectable()
export class OptionalBody implements PipeTransform {
  private readonly pipe = new ContractPipe();

  constructor(private readonly body: new () => object) {}

  transform(value: unknown): Promise<unknown> {
    return this.pipe.transform(value ?? {}, { type: 'body', metatype: this.body });
  }
}
