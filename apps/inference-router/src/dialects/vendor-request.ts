import { withVendorIds } from '../completions/call-ids.js';
import type { Order, OrderMessage } from '../completions/order.js';
import type { Level } from '../catalogue/model.js';
import type { Route } from '../catalogue/catalogue.js';
import type { Dialect, Fields } from './dialect.js';
import { vendorMessages } from './vendor-messages.js';

/** The body for a vendor, always streamed and with counters (inference-wire.md, 1.7 and 1.8). */
export function vendorRequest(asked: Order, route: Route): Record<string, unknown> {
  const { dialect } = route;
  const order = withChoice(dialect.schemas === 'told' ? withSchemaTold(asked) : asked, dialect);
  const settings: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(order.settings)) {
    if (!dialect.drops?.includes(name)) settings[dialect.renames?.[name] ?? name] = value;
  }
  const { fields, messages } = withReasoning(order, route);
  return {
    model: route.vendorModel,
    messages: vendorMessages(withVendorIds(messages), dialect),
    ...settings,
    ...toolFields(order, route),
    [dialect.ceilingField]: order.ceiling,
    stream: true,
    stream_options: { include_usage: true },
    ...dialect.always,
    ...fields,
  };
}

/** The schema of the answer as words for the model, behind what the client tells it first. */
function withSchemaTold(order: Order): Order {
  const { messages, settings } = order;
  const asked = settings['response_format'] as
    { type?: unknown; json_schema?: { schema?: unknown } } | undefined;
  const schema = asked?.type === 'json_schema' ? asked.json_schema?.schema : undefined;
  if (typeof schema !== 'object' || schema === null) return order;
  const content = `Answer with JSON alone, one value that keeps to this JSON schema:\n${JSON.stringify(schema)}`;
  const at = messages.findIndex(({ role }) => role !== 'system');
  const note: OrderMessage = { role: 'system', content };
  return {
    ...order,
    messages: at === -1 ? [...messages, note] : messages.toSpliced(at, 0, note),
    settings: { ...settings, response_format: { type: 'json_object' } },
  };
}

/** A choice that forces a call, as the vendor takes it from a model that reasons; or without reasoning. */
function withChoice(order: Order, { choiceWhileReasoning: strongest }: Dialect): Order {
  const { toolChoice: choice, tools, effort } = order;
  const { reasoning: rules } = order.offer.model;
  const isForced = choice === 'required' || (typeof choice === 'object' && choice !== null);
  if (!isForced || !strongest || !rules || tools.length === 0) return order;
  if (strongest === 'required') {
    const name = (choice as { function?: { name?: unknown } }).function?.name;
    const named = tools.filter((tool) => tool.function.name === name);
    return named.length > 0 ? { ...order, tools: named, toolChoice: 'required' } : order;
  }
  const mayBeOff = rules.off && (effort === undefined || effort === 'none');
  return mayBeOff ? { ...order, effort: 'none' } : { ...order, toolChoice: 'auto' };
}

function toolFields(order: Order, { dialect }: Route): Fields {
  // `tools: []` and a choice without tools are refused by vendors.
  if (order.tools.length === 0) return {};
  const { toolChoice } = order;
  const rule = dialect.toolChoice ?? 'any';
  const hasChoice = toolChoice !== undefined && rule !== 'none' && (rule === 'any' || toolChoice === 'auto');
  // Vendors that know no "none" would call a tool all the same, so the tools stay at home.
  if (toolChoice === 'none' && rule !== 'any') return {};
  return { tools: order.tools, ...(hasChoice ? { tool_choice: toolChoice } : {}), ...dialect.withTools };
}

/** Fields that switch reasoning, and the history as the vendor takes it (inference-wire.md, 5 and 7.5). */
function withReasoning(order: Order, route: Route): { fields: Fields; messages: readonly OrderMessage[] } {
  const { messages } = order;
  const { reasoning: rules } = order.offer.model;
  const back = route.dialect.reasoningBack;
  const isOff = order.effort === 'none';
  if (!rules || !back || (isOff && !back.always)) return { fields: reasoningFields(order, route), messages };
  if (!messages.some(lacksReasoning)) {
    const isWanted = back.answers === true && (order.tools.length > 0 || messages.some(hasCalls));
    return {
      fields: reasoningFields(order, route),
      messages: isWanted ? filledWith(back.placeholder, messages) : messages,
    };
  }
  // The vendor answers 400 to tool turns without their reasoning: it does without for this one request, or is told of none.
  const fields = rules.off ? (switches(route).off ?? {}) : reasoningFields(order, route);
  if (rules.off && !back.always) return { fields, messages };
  const filled = messages.map((message) =>
    lacksReasoning(message) ? { ...message, reasoning_content: back.placeholder } : message,
  );
  return { fields, messages: filled };
}

const hasCalls = (message: OrderMessage): boolean => message.tool_calls !== undefined;

const isBare = (message: OrderMessage): boolean =>
  message.role === 'assistant' && message.reasoning_content === undefined;

const lacksReasoning = (message: OrderMessage): boolean => isBare(message) && hasCalls(message);

/** Every turn of the assistant with reasoning; the same array where none lacks it. */
const filledWith = (placeholder: string, messages: readonly OrderMessage[]): readonly OrderMessage[] =>
  messages.some(isBare)
    ? messages.map((one) => (isBare(one) ? { ...one, reasoning_content: placeholder } : one))
    : messages;

const switches = ({ dialect, reasoning }: Route) => ({
  off: reasoning?.off ?? dialect.reasoning.off,
  on: reasoning?.on ?? dialect.reasoning.on,
});

function reasoningFields({ offer, effort: asked, ceiling }: Order, route: Route): Fields {
  const { off, on } = switches(route);
  const { model } = offer;
  if (!model.reasoning) return model.alwaysOff ? (off ?? {}) : {};
  // Where it cannot be switched off, formats whose clients cannot live with a refusal mean the shortest mode (7.1).
  const effort = asked === 'none' && !model.reasoning.off ? 'minimal' : asked;
  if (effort === 'none') return off ?? {};
  if (effort !== undefined) return { ...on, ...levelFields(effort, ceiling, model.reasoning.levels, route) };
  if (model.reasoning.default === 'off') return off ?? {};
  const bound = route.dialect.reasoning.bound?.(ceiling) ?? {};
  return model.reasoning.default === 'on' ? { ...on, ...bound } : bound;
}

function levelFields(
  level: Level,
  ceiling: number,
  own: Partial<Record<Level, string>> | undefined,
  route: Route,
): Fields {
  const told = route.reasoning?.levels?.[level];
  if (told) return told;
  const { levels, level: fields } = route.dialect.reasoning;
  const word = levels && (own?.[level] ?? levels[level]);
  return word && fields ? fields(word, ceiling) : {};
}
