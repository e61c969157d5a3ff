/**
 * What a client sends that works on files in long tool loops: written by hand after what such clients were seen to send
 * (inference-wire.md, 2), with all the fields that mean nothing here.
 */

export const loopPath = '/v1/messages?beta=true';

export const loopHeaders = {
  'content-type': 'application/json',
  'anthropic-version': '2023-06-01',
  'anthropic-beta': 'interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24',
  'x-app': 'cli',
  'x-stainless-retry-count': '0',
};

const cached = { cache_control: { type: 'ephemeral' } };
const schema = (...names: string[]) => ({
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: Object.fromEntries(names.map((name) => [name, { type: 'string', description: `the ${name}` }])),
  required: names,
  additionalProperties: false,
});

const tools = [
  { name: 'Read', description: 'Reads a file.', input_schema: schema('file_path') },
  { name: 'Write', description: 'Writes a file.', input_schema: schema('file_path', 'content') },
  { name: 'Shell', description: 'Runs a command.', input_schema: schema('command') },
  { name: 'FindTool', description: 'Finds more tools.', input_schema: schema('query') },
  { name: 'DeferredToolPlaceholder', description: 'x', input_schema: schema(), defer_loading: true },
  {
    name: 'SendMail',
    description: 'Sends a mail.',
    input_schema: schema('to'),
    defer_loading: true,
    ...cached,
  },
];

/** A body with the messages of the loop so far. */
export const loopBody = (messages: readonly object[]) => ({
  model: 'deepseek-v4.1-flash',
  max_tokens: 32_000,
  stream: true,
  system: [
    { type: 'text', text: 'x-billing-note: version=1; entry=cli;' },
    { type: 'text', text: 'You work on the files of the user.', ...cached },
    { type: 'text', text: 'Be brief. Use tools.', ...cached },
  ],
  messages,
  tools,
  thinking: { type: 'adaptive', display: 'omitted' },
  output_config: { effort: 'high' },
  context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
  metadata: { user_id: '{"device":"d","session":"s"}' },
});

/** The first turn of the user: notes and a task, then a system message in the middle. */
export const firstTurn = [
  {
    role: 'user',
    content: [
      { type: 'text', text: '<reminder>Today is Saturday.</reminder>' },
      { type: 'text', text: 'Make a picture page of logo.png.', ...cached },
    ],
  },
  { role: 'system', content: [{ type: 'text', text: 'The folder is /srv/site.', ...cached }] },
];

/** The results of the first turn's three calls, and what stands beside them. */
export const secondTurn = (ids: readonly string[]) => [
  { role: 'system', content: 'The user opened index.html.' },
  {
    role: 'user',
    content: [
      {
        type: 'tool_result',
        tool_use_id: ids[0],
        content: [
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } },
        ],
      },
      {
        type: 'tool_result',
        tool_use_id: ids[1],
        content: '<tool_use_error>No such file: index.html</tool_use_error>',
        is_error: true,
      },
      {
        type: 'tool_result',
        tool_use_id: ids[2],
        content: [{ type: 'tool_reference', tool_name: 'SendMail' }],
        ...cached,
      },
      { type: 'text', text: '<reminder>Mail it when done.</reminder>' },
    ],
  },
];

/** A search that such a client asks for beside its loop: nothing but a tool that does not exist here. */
export const searchBody = {
  model: 'deepseek-v4.1-flash',
  max_tokens: 32_000,
  stream: true,
  system: [{ type: 'text', text: 'You search the web.' }],
  messages: [{ role: 'user', content: [{ type: 'text', text: 'Search: picture page' }] }],
  tools: [{ type: 'web_search_20250305', name: 'web_search', max_uses: 8 }],
  tool_choice: { type: 'auto' },
};
