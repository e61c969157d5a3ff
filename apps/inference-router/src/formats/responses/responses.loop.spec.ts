import { sharedPostgres } from '@nebo/test-kit';
import { LoopClient, patchGrammar, picture } from '../../../test/loop-client.js';
import { newCaller, type Router, startRouter } from '../../../test/harness.js';
import { callPiece, chunk } from '../../../test/responses.js';

const usage = {
  prompt_tokens: 9_000,
  completion_tokens: 50,
  prompt_tokens_details: { cached_tokens: 8_000 },
};
const patch =
  '*** Begin Patch\n*** Update File: a.html\n-<h1>Old</h1>\n+<h1>"Новый" \\o/</h1>\n*** End Patch\n';
const turns = [
  [
    chunk({ reasoning_content: 'Where is ' }),
    chunk({ reasoning_content: 'the heading?' }),
    chunk({ content: 'I look at both.' }),
    callPiece(0, '', 'functions.exec_command:0', 'exec_command'),
    callPiece(1, '', 'functions.exec_command:1', 'exec_command'),
    callPiece(0, '{"cmd":"cat '),
    callPiece(1, '{"cmd":"ls"}'),
    callPiece(0, 'a.html"}'),
    chunk({}, 'tool_calls', usage),
  ],
  [
    chunk({ reasoning_content: 'Now edit.' }),
    ...JSON.stringify({ input: patch })
      .match(/[^]{1,9}/g)!
      .map((piece, index) =>
        index === 0 ? callPiece(0, piece, 'functions.apply_patch:2', 'apply_patch') : callPiece(0, piece),
      ),
    callPiece(1, '{"place":"Omsk"}', 'functions.find_place:3', 'maps__find_place'),
    callPiece(2, '{"path":"shot.png"}', 'functions.view_image:4', 'view_image'),
    chunk({}, 'stop', usage),
  ],
  [chunk({ content: 'The heading is right.' }), chunk({}, 'stop', usage)],
];
const call = (id: string, name: string, args: object) => ({
  id,
  type: 'function',
  function: { name, arguments: JSON.stringify(args) },
});

describe('a client that works on files, in three turns', () => {
  let router: Router;
  beforeAll(async () => {
    router = await startRouter();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  it('its tools, its thoughts, its patches and its pictures come through', async () => {
    router.upstream.next(...turns.map((raw) => ({ raw: [...raw, 'data: [DONE]\n\n'] })));
    const client = new LoopClient(router, {
      exec_command: 'Exit code: 0\n<h1>Old</h1>',
      apply_patch: 'Success. Updated a.html',
      'maps.find_place': { id: 'place-7' },
      view_image: [{ type: 'input_image', image_url: picture, detail: 'high' }],
    });
    for (let turn = 0; turn < 3; turn += 1) {
      const { status, events } = await client.turn();
      expect(status).toBe(200);
      expect(events.at(-1)).toMatchObject({
        type: 'response.completed',
        response: { usage: { input_tokens: 9_000, input_tokens_details: { cached_tokens: 8_000 } } },
      });
    }

    const requests = router.upstream.requests.map(({ body }) => body!);
    expect(requests).toHaveLength(3);
    const tools = requests[0]!['tools'] as { function: { name: string; description: string } }[];
    expect(tools.map((tool) => tool.function.name)).toEqual([
      'exec_command',
      'apply_patch',
      'view_image',
      'maps__find_place',
      'maps__find_way',
    ]);
    expect(tools[1]!.function.description).toContain(patchGrammar);
    expect(requests[0]).toMatchObject({ tool_choice: 'auto', reasoning_effort: 'high' });

    const [developer, environment, user, first, cat, ls, second, ...results] = requests[2]![
      'messages'
    ] as Record<string, unknown>[];
    expect(developer).toEqual({
      role: 'system',
      content: 'You work on the files of the user.\n\nThe folder may be written to.',
    });
    expect([environment!['role'], user!['content']]).toEqual(['user', 'Fix the heading, then look at it.']);
    expect(first).toEqual({
      role: 'assistant',
      content: 'I look at both.',
      reasoning_content: 'Where is the heading?',
      tool_calls: [
        call('functions.exec_command:0', 'exec_command', { cmd: 'cat a.html' }),
        call('functions.exec_command:1', 'exec_command', { cmd: 'ls' }),
      ],
    });
    expect([cat!['tool_call_id'], ls!['tool_call_id']]).toEqual([
      'functions.exec_command:0',
      'functions.exec_command:1',
    ]);
    expect(second).toEqual({
      role: 'assistant',
      content: null,
      reasoning_content: 'Now edit.',
      tool_calls: [
        call('functions.apply_patch:2', 'apply_patch', { input: patch }),
        call('functions.find_place:3', 'maps__find_place', { place: 'Omsk' }),
        call('functions.view_image:4', 'view_image', { path: 'shot.png' }),
      ],
    });
    expect(results.slice(0, 2)).toEqual([
      { role: 'tool', tool_call_id: 'functions.apply_patch:2', content: 'Success. Updated a.html' },
      { role: 'tool', tool_call_id: 'functions.find_place:3', content: '{"id":"place-7"}' },
    ]);
    expect(results[2]).toMatchObject({ role: 'tool', tool_call_id: 'functions.view_image:4' });
    expect(JSON.stringify(results.slice(2))).toContain(picture);

    // What the client keeps is what it ran: the patch as text, the tool of a namespace by both of its names.
    expect(client.items.filter((item) => String(item['type']).endsWith('_call')).slice(2)).toMatchObject([
      { type: 'custom_tool_call', name: 'apply_patch', input: patch },
      { type: 'function_call', namespace: 'maps', name: 'find_place' },
      { type: 'function_call', name: 'view_image' },
    ]);
    expect(client.items.filter((item) => item['type'] === 'reasoning')).toMatchObject([
      { encrypted_content: expect.stringMatching(/^nebo1\./) },
      { encrypted_content: expect.stringMatching(/^nebo1\./) },
    ]);
  });
});
