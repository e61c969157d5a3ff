import type { Admitted } from '../../completions/admission.js';
import type { Format } from '../format.js';
import { estimateInput } from './input-estimate.js';
import { type MessageHead, MessagesAnswer } from './messages-answer.js';
import { readMessagesRequest } from './messages-request.js';
import { MessagesStream } from './messages-stream.js';

/** Messages: content in blocks, reasoning as thinking blocks, tools by their results. */
export const messagesFormat: Format = {
  path: '/v1/messages',
  // What clients of this format show to their users.
  requestIdHeader: 'request-id',
  read: (body, catalogue, caller) => {
    const { order, hidesThinking } = readMessagesRequest(body, catalogue, caller);
    return {
      order,
      stream: (admitted) =>
        new MessagesStream(headOf(admitted), estimateInput(admitted.order), hidesThinking),
      plain: (admitted) => new MessagesAnswer(headOf(admitted), hidesThinking),
    };
  },
};

const headOf = ({ operationId, order }: Admitted): MessageHead => ({
  id: `msg_${operationId}`,
  model: order.offer.model.id,
});
