import type { Admitted } from '../../completions/admission.js';
import type { Format } from '../format.js';
import { ChatAnswer, type ChatHead } from './chat-answer.js';
import { readChatRequest } from './chat-request.js';
import { ChatStream } from './chat-stream.js';

/** Chat completions: the format whose requests and chunks vendors speak themselves. */
export const chatFormat: Format = {
  path: '/v1/chat/completions',
  read: (body, catalogue, caller) => {
    const { order, includeUsage } = readChatRequest(body, catalogue, caller);
    return {
      order,
      stream: (admitted) => new ChatStream(headOf(admitted), includeUsage),
      plain: (admitted) => new ChatAnswer(headOf(admitted)),
    };
  },
};

const headOf = ({ operationId, startedAt, order }: Admitted): ChatHead => ({
  id: `chatcmpl-${operationId}`,
  created: Math.floor(startedAt.getTime() / 1_000),
  model: order.offer.model.id,
});
