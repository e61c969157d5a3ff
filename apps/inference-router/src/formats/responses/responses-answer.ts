import type { Piece } from '../../completions/piece.js';
import type { Completed } from '../../completions/completions.service.js';
import type { PlainWriter } from '../format.js';
import { ended, type ResponseHead } from './response-object.js';
import type { ResponseOutput } from './response-output.js';

/** Puts a plain response together. */
export class ResponsesAnswer implements PlainWriter {
  constructor(
    private readonly head: ResponseHead,
    private readonly output: ResponseOutput,
  ) {}

  add(pieces: readonly Piece[]): void {
    this.output.add(pieces);
  }

  body(completed: Completed): object {
    this.output.finish(completed.finish);
    return ended(this.head, this.output.items, completed);
  }
}
