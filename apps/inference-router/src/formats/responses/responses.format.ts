import { Inject, Injectable } from '@nestjs/common';
import type { InferenceIdentity } from '@nebo/contracts';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Catalogue } from '../../catalogue/catalogue.js';
import type { Admitted } from '../../completions/admission.js';
import type { Format, FormatRequest } from '../format.js';
import type { ResponseHead } from './response-object.js';
import { type OutputContext, ResponseOutput } from './response-output.js';
import { ResponsesAnswer } from './responses-answer.js';
import { readResponsesRequest, type ResponsesRequest } from './responses-request.js';
import { ResponsesStream } from './responses-stream.js';
import { ReasoningSeal } from './sealed-reasoning.js';

/** Responses: a history of items in, items out; nothing is stored. */
@Injectable()
export class ResponsesFormat implements Format {
  readonly path = '/v1/responses';
  private readonly seal: ReasoningSeal;

  constructor(@Inject(RUNTIME) { masterKey }: Pick<Runtime, 'masterKey'>) {
    this.seal = new ReasoningSeal(masterKey);
  }

  read(body: unknown, catalogue: Catalogue, caller: InferenceIdentity): FormatRequest {
    const request = readResponsesRequest(body, catalogue, caller, (sealed) =>
      this.seal.open(sealed, caller.account_id),
    );
    return {
      order: request.order,
      stream: (admitted) => new ResponsesStream(headOf(admitted, request), this.contextOf(admitted, request)),
      plain: (admitted) =>
        new ResponsesAnswer(headOf(admitted, request), new ResponseOutput(this.contextOf(admitted, request))),
    };
  }

  private contextOf({ operationId, account }: Admitted, request: ResponsesRequest): OutputContext {
    return {
      operationId,
      names: request.names,
      seal: request.wantsSealed ? (text) => this.seal.seal(text, account) : null,
    };
  }
}

const headOf = (
  { operationId, startedAt, order }: Admitted,
  { echo }: Pick<ResponsesRequest, 'echo'>,
): ResponseHead => ({
  id: `resp_${operationId}`,
  created: Math.floor(startedAt.getTime() / 1_000),
  model: order.offer.model.id,
  echo,
});
