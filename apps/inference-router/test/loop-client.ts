import { respond, type ResponseEvent, responseEvents } from './responses.js';
import type { Router } from './harness.js';

type Item = Record<string, unknown>;

const text = (value: string, type = 'input_text') => ({ type, text: value });
const object = (properties: object) => ({ type: 'object', properties, additionalProperties: false });

/** The grammar of its patches, in the form that such clients send. */
export const patchGrammar = `start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: "*** Update File: " filename LF change+
filename: /(.+)/
change: ("+" | "-" | " ") /(.*)/ LF
%import common.LF
`;

export const picture = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk';

/** All that such a client sends beside its items. */
const settings = {
  model: 'kimi-k3',
  tools: [
    {
      type: 'function',
      name: 'exec_command',
      description: 'Runs a command.',
      strict: false,
      parameters: object({ cmd: { type: 'string' }, yield_time_ms: { type: 'number' } }),
    },
    {
      type: 'custom',
      name: 'apply_patch',
      description: 'Edits files with a patch.',
      format: { type: 'grammar', syntax: 'lark', definition: patchGrammar },
    },
    {
      type: 'function',
      name: 'view_image',
      description: 'Shows a picture.',
      strict: false,
      parameters: object({ path: { type: 'string' } }),
    },
    {
      type: 'namespace',
      name: 'maps',
      description: 'Places and ways.',
      tools: [
        {
          type: 'function',
          name: 'find_place',
          description: 'Finds one.',
          strict: false,
          parameters: object({ place: { type: 'string' } }),
        },
        {
          type: 'function',
          name: 'find_way',
          strict: false,
          parameters: object({ to: { type: 'string' } }),
        },
      ],
    },
    { type: 'tool_search', execution: 'client', description: 'Finds tools.', parameters: object({}) },
    { type: 'web_search', external_web_access: false },
  ],
  tool_choice: 'auto',
  parallel_tool_calls: true,
  reasoning: { effort: 'medium', summary: 'auto' },
  store: false,
  stream: true,
  include: ['reasoning.encrypted_content'],
  prompt_cache_key: '0197a1f2-2f7c-7d43-9a5e-6f2f2f6f0c11',
  client_metadata: { 'x-installation': '5b0e' },
  text: { verbosity: 'low' },
};

/**
 * Plays a client that works on files in long tool loops: the developer's message comes first, every item has a type and an
 * id, what it keeps of an answer are the items of `response.output_item.done`, and it runs whatever is called.
 */
export class LoopClient {
  readonly items: Item[] = [
    {
      type: 'message',
      id: 'msg_in_0',
      role: 'developer',
      content: [text('You work on the files of the user.'), text('The folder may be written to.')],
    },
    {
      type: 'message',
      id: 'msg_in_1',
      role: 'user',
      content: [text('<environment><shell>bash</shell></environment>')],
    },
    { type: 'message', id: 'msg_in_2', role: 'user', content: [text('Fix the heading, then look at it.')] },
  ];
  private count = 3;

  /** @param results what each tool gives back, by its name */
  constructor(
    private readonly router: Router,
    private readonly results: Readonly<Record<string, unknown>>,
  ) {}

  /** One request; its answer and the results of its calls join the history. */
  async turn(): Promise<{ status: number; events: ResponseEvent[] }> {
    const response = await respond(this.router, { ...settings, input: this.items });
    const events = responseEvents(await response.text());
    const done = events
      .filter(({ type }) => type === 'response.output_item.done')
      .map(({ item }) => item as Item);
    for (const item of done) this.items.push(kept(item));
    for (const item of done) {
      const name = [item['namespace'], item['name']].filter(Boolean).join('.');
      if (item['type'] !== 'function_call' && item['type'] !== 'custom_tool_call') continue;
      this.items.push({
        type: `${item['type']}_output`,
        id: `out_${this.count++}`,
        call_id: item['call_id'],
        output: this.results[name],
      });
    }
    return { status: response.status, events };
  }
}

/** Fields that are not known are lost, and absent ones become null. */
function kept(item: Item): Item {
  if (item['type'] === 'reasoning')
    return { ...item, content: null, encrypted_content: item['encrypted_content'] ?? null };
  if (item['type'] !== 'message') return item;
  const parts = item['content'] as { text: string }[];
  return {
    type: 'message',
    id: item['id'],
    role: 'assistant',
    content: parts.map((part) => text(part.text, 'output_text')),
  };
}
