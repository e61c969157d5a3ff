import { sharedPostgres } from '@nebo/test-kit';
import { newCaller, type Router, startRouter } from '../../../test/harness.js';
import { respond } from '../../../test/responses.js';

const png = 'data:image/png;base64,iVBORw0KGgo=';
const said = (role: string, text: string) => ({
  type: 'message',
  id: 'msg_1',
  role,
  content: [{ type: role === 'assistant' ? 'output_text' : 'input_text', text }],
});
const thought = (text: string, more: object = {}) => ({
  type: 'reasoning',
  id: 'rs_1',
  summary: [{ type: 'summary_text', text }],
  content: null,
  encrypted_content: null,
  ...more,
});
const called = (id: string, name: string, args: string, more: object = {}) => ({
  type: 'function_call',
  id: 'fc_1',
  call_id: id,
  name,
  arguments: args,
  ...more,
});
const output = (id: string, value: unknown, type = 'function_call_output') => ({
  type,
  call_id: id,
  output: value,
});
const call = (id: string, name: string, args: string) => ({
  id,
  type: 'function',
  function: { name, arguments: args },
});

describe('input of the responses format', () => {
  let router: Router;
  beforeAll(async () => {
    router = await startRouter();
  });
  beforeEach(() => {
    router.upstream.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  /** What the upstream gets of a request, and the answer. */
  const send = async (body: object) => {
    const response = await respond(router, { model: 'qwen3-coder-next', input: 'hi', ...body });
    const answer = (await response.json()) as Record<string, never>;
    if (response.status !== 200) throw new Error(`${response.status} ${JSON.stringify(answer)}`);
    return { asked: router.upstream.requests.at(-1)!.body as Record<string, never>, answer };
  };
  const messagesOf = async (input: unknown, more: object = {}) =>
    (await send({ input, ...more })).asked['messages'] as unknown;

  describe('input', () => {
    it('a text, with instructions in front', async () => {
      expect(await messagesOf('hi', { instructions: 'Be short.' })).toEqual([
        { role: 'system', content: 'Be short.' },
        { role: 'user', content: 'hi' },
      ]);
    });

    it('messages of every role, with and without a type, as text or parts', async () => {
      expect(
        await messagesOf([
          said('developer', 'a'),
          { role: 'system', content: 'b' },
          {
            role: 'user',
            content: [
              { type: 'input_text', text: 'c' },
              { type: 'input_text', text: 'd' },
            ],
          },
          {
            role: 'assistant',
            content: [
              { type: 'output_text', text: 'e' },
              { type: 'refusal', refusal: 'f' },
            ],
          },
          { role: 'assistant', content: 'g' },
          { role: 'assistant', content: [] },
          { role: 'user', content: 'h' },
        ]),
      ).toEqual([
        { role: 'system', content: 'a' },
        { role: 'system', content: 'b' },
        { role: 'user', content: 'c\n\nd' },
        { role: 'assistant', content: 'e\n\nf\n\ng' },
        { role: 'user', content: 'h' },
      ]);
    });

    it('images by link and data, with the details that vendors know', async () => {
      expect(
        await messagesOf(
          [
            {
              role: 'user',
              content: [
                { type: 'input_text', text: 'look' },
                { type: 'input_image', image_url: 'https://example.com/a.png', detail: 'high' },
                { type: 'input_image', image_url: png, detail: 'original' },
              ],
            },
          ],
          { model: 'glm-5v-turbo' },
        ),
      ).toMatchObject([
        {
          content: [
            { type: 'text', text: 'look' },
            { type: 'image_url', image_url: { detail: 'high' } },
            { type: 'image_url', image_url: { url: png } },
          ],
        },
      ]);
    });

    it('reasoning, text and calls of one turn become one message, then the outputs', async () => {
      expect(
        await messagesOf([
          said('user', 'go'),
          thought('first'),
          said('assistant', 'I look.'),
          called('functions.a:0', 'a', '{"x":1}'),
          thought('second'),
          called('c1', 'b', ''),
          { type: 'custom_tool_call', call_id: 'c2', name: 'p', input: 'li"ne\n' },
          output('functions.a:0', 'A'),
          output('c1', { rows: [1] }),
          output(
            'c2',
            [
              { type: 'input_text', text: 'x' },
              { type: 'input_text', text: 'y' },
            ],
            'custom_tool_call_output',
          ),
          said('assistant', 'Done.'),
          said('user', 'thanks'),
        ]),
      ).toEqual([
        { role: 'user', content: 'go' },
        {
          role: 'assistant',
          content: 'I look.',
          reasoning_content: 'first\n\nsecond',
          tool_calls: [
            call('functions.a:0', 'a', '{"x":1}'),
            call('c1', 'b', '{}'),
            call('c2', 'p', '{"input":"li\\"ne\\n"}'),
          ],
        },
        { role: 'tool', tool_call_id: 'functions.a:0', content: 'A' },
        { role: 'tool', tool_call_id: 'c1', content: '{"rows":[1]}' },
        { role: 'tool', tool_call_id: 'c2', content: 'x\n\ny' },
        { role: 'assistant', content: 'Done.' },
        { role: 'user', content: 'thanks' },
      ]);
    });

    it('the picture of a tool reaches the model, after its text', async () => {
      const messages = await messagesOf(
        [
          said('user', 'see'),
          called('c0', 'view_image', '{}'),
          output('c0', [
            { type: 'input_text', text: 'shot' },
            { type: 'input_image', image_url: png },
          ]),
        ],
        { model: 'kimi-k3' },
      );
      const text = JSON.stringify(messages);
      expect(text).toContain(png);
      expect(text.indexOf('shot')).toBeLessThan(text.indexOf(png));
    });

    it('what hosted tools left behind is passed over, and does not part a turn', async () => {
      expect(
        await messagesOf([
          said('user', 'go'),
          thought('hm'),
          {
            type: 'web_search_call',
            id: 'ws_1',
            status: 'completed',
            action: { type: 'search', query: 'x' },
          },
          { type: 'tool_search_call', call_id: 't1', execution: 'client', arguments: {} },
          { type: 'tool_search_output', call_id: 't1', tools: [] },
          said('assistant', 'found'),
          said('user', 'ok'),
        ]),
      ).toEqual([
        { role: 'user', content: 'go' },
        { role: 'assistant', content: 'found', reasoning_content: 'hm' },
        { role: 'user', content: 'ok' },
      ]);
    });

    it('what a user says before the results are there comes after them', async () => {
      expect(
        await messagesOf([
          called('c0', 'a', '{}'),
          called('c1', 'a', '{}'),
          said('user', 'hurry'),
          output('c1', 'B'),
          output('c0', 'A'),
          output('lost', 'C'),
        ]),
      ).toMatchObject([
        { role: 'assistant', tool_calls: [{ id: 'c0' }, { id: 'c1' }] },
        { role: 'tool', tool_call_id: 'c1' },
        { role: 'tool', tool_call_id: 'c0' },
        { role: 'user', content: 'hurry' },
        { role: 'tool', tool_call_id: 'lost' },
      ]);
    });

    it('thoughts that led to nothing are left out: vendors refuse an empty turn', async () => {
      expect(await messagesOf([said('user', 'a'), thought('hm'), said('user', 'b')])).toEqual([
        { role: 'user', content: 'a' },
        { role: 'user', content: 'b' },
      ]);
    });

    it('a call of a tool in a namespace has the name that the model knew', async () => {
      const [, turn] = (await messagesOf([
        said('user', 'go'),
        called('c0', 'find', '{}', { namespace: 'maps' }),
        output('c0', 'ok'),
      ])) as Record<string, unknown>[];
      expect(turn).toMatchObject({ tool_calls: [{ function: { name: 'maps__find' } }] });
    });
  });

  describe('sealed reasoning', () => {
    const sealed = async (body: object) => {
      router.upstream.next({ reasoning: ['the real thought'], chunks: ['ok'] });
      const { answer } = await send({ model: 'glm-5.3', ...body });
      return (answer['output'] as unknown as Record<string, string>[])[0]!['encrypted_content'];
    };
    const back = async (item: object) =>
      (
        (await messagesOf([said('user', 'a'), item, said('assistant', 'b'), said('user', 'c')], {
          model: 'glm-5.3',
        })) as unknown as Record<string, string>[]
      )[1]!['reasoning_content'];

    it('comes when it is asked for, and for clients that say store: false', async () => {
      const include = ['reasoning.encrypted_content'];
      expect(await sealed({ include })).toMatch(/^nebo1\./);
      expect(await sealed({ include, store: true })).toMatch(/^nebo1\./);
      expect(await sealed({ store: false })).toMatch(/^nebo1\./);
      expect(await sealed({})).toBeUndefined();
      expect(await sealed({ store: true, include: ['message.output_text.logprobs'] })).toBeUndefined();
    });

    it('goes before the summary, which clients may cut or drop', async () => {
      const copy = await sealed({ store: false });
      expect(await back(thought('cut', { encrypted_content: copy }))).toBe('the real thought');
      expect(await back({ type: 'reasoning', summary: [], encrypted_content: copy })).toBe(
        'the real thought',
      );
    });

    it('of another account, or of another service, is passed over, and the summary counts', async () => {
      const copy = await sealed({ store: false });
      router.identity = newCaller(router.billing);
      expect(await back(thought('shown', { encrypted_content: copy }))).toBe('shown');
      expect(await back(thought('shown', { encrypted_content: 'gAAAA' }))).toBe('shown');
      expect(await back(thought('', { encrypted_content: copy }))).toBeUndefined();
      expect(
        await back({ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'plain' }] }),
      ).toBe('plain');
    });
  });
});
