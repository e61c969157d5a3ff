import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { Inject, Injectable } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Route } from '../catalogue/catalogue.js';
import type { OrderMessage, Tool } from '../completions/order.js';
import { Cancel } from '../completions/cancel.js';
import { UpstreamEvent } from '../upstreams/upstream-event.js';
import type { AnswerTaker, Sending, Upstream } from '../upstreams/upstream.js';
import { countPrompt, lastUserText, pieces } from './simulated-text.js';
import { wantedTool } from './simulated-tools.js';

interface SimulatorRequest {
  model: string;
  messages: OrderMessage[];
  tools?: Tool[];
  tool_choice?: unknown;
  max_tokens: number;
  reasoning_effort?: string;
}

/**
 * A stand-in for models where the operator has configured none: it answers a fixed text that says what it is, in the wire
 * form of a vendor, so that everything behind it works as with a real one.
 */
@Injectable()
export class SimulatorUpstream implements Upstream {
  private readonly pause: number;

  constructor(@Inject(RUNTIME) runtime: Pick<Runtime, 'config'>) {
    this.pause = runtime.config.int('NEBO_SIMULATOR_PAUSE_MS', 2, { max: 10_000 });
  }

  send(_route: Route, body: Record<string, unknown>, taker: AnswerTaker): Sending {
    const cancel = new Cancel();
    this.stream(body as unknown as SimulatorRequest, taker, cancel).then(
      () => taker.ended(),
      (error: Error) => taker.failed(cancel.reason ?? error),
    );
    return cancel;
  }

  private async stream(request: SimulatorRequest, taker: AnswerTaker, cancel: Cancel): Promise<void> {
    let output = 0;
    let reasoning = 0;
    const event = async (value: object) => {
      cancel.throwIfCancelled();
      const data = JSON.stringify({ object: 'chat.completion.chunk', ...value });
      await taker.events([new UpstreamEvent(data)]);
    };
    const chunk = (delta: object, finish: string | null = null) =>
      event({ choices: [{ index: 0, delta, finish_reason: finish }] });
    const hasRoom = () => output < request.max_tokens;
    const { signal } = cancel;
    // As over a network: nothing comes before the request is under way.
    await nextTurn();
    await chunk({ role: 'assistant', content: '' });
    let finish = 'stop';
    for (const part of answerParts(request)) {
      if (!hasRoom()) {
        finish = 'length';
        break;
      }
      await (this.pause > 0 ? sleep(this.pause, undefined, { signal }) : nextTurn(undefined, { signal }));
      output += part.tokens;
      if ('reasoning_content' in part.delta) reasoning += part.tokens;
      if ('tool_calls' in part.delta) finish = 'tool_calls';
      await chunk(part.delta);
    }
    await chunk({}, finish);
    const input = countPrompt(request.messages, request.tools);
    await event({
      choices: [],
      usage: {
        prompt_tokens: input,
        completion_tokens: output,
        total_tokens: input + output,
        completion_tokens_details: { reasoning_tokens: reasoning },
      },
    });
  }
}

interface Part {
  delta: Record<string, unknown>;
  tokens: number;
}

function* answerParts(request: SimulatorRequest): Generator<Part> {
  const effort = request.reasoning_effort;
  if (effort !== undefined && effort !== 'none') {
    for (const piece of pieces(
      'The simulator does not reason; this text stands where reasoning would be. ',
    )) {
      yield { delta: { reasoning_content: piece }, tokens: 1 };
    }
  }
  const call = wantedTool(request.messages, request.tools ?? [], request.tool_choice);
  if (call) {
    const text = JSON.stringify(call.arguments);
    const id = `call_sim_${request.messages.length}`;
    yield {
      delta: {
        tool_calls: [{ index: 0, id, type: 'function', function: { name: call.name, arguments: '' } }],
      },
      tokens: 1,
    };
    for (const piece of pieces(text)) {
      yield { delta: { tool_calls: [{ index: 0, function: { arguments: piece } }] }, tokens: 1 };
    }
    return;
  }
  for (const piece of pieces(answerText(request))) yield { delta: { content: piece }, tokens: 1 };
}

function answerText({ model, messages }: SimulatorRequest): string {
  const intro = `This is the built-in model simulator of Nebo standing in for ${model}: no real model has been asked.`;
  const last = messages.at(-1);
  if (last?.role === 'tool') {
    const result = typeof last.content === 'string' ? last.content : JSON.stringify(last.content);
    return `${intro} The tool returned: ${result.slice(0, 500)}`;
  }
  const text = lastUserText(messages).slice(0, 500);
  return text ? `${intro} You wrote: ${text}` : intro;
}
