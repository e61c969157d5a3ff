import { framesOf, upstreamDialects, upstreamHabits, type UpstreamAnswer } from '@nebo/test-kit';
import { ChatAnswer } from '../src/formats/chat/chat-answer.js';
import { ChatStream } from '../src/formats/chat/chat-stream.js';
import { expectGolden, goldenHead, goldenStreams, keepUpstream, plain, replay, streamed } from './golden.js';
import { together } from './outbound.js';

const usage = {
  prompt_tokens: 120,
  completion_tokens: 40,
  total_tokens: 160,
  prompt_tokens_details: { cached_tokens: 64 },
  completion_tokens_details: { reasoning_tokens: 12 },
};
const call = (name: string, number: number, args: object) => ({
  id: `functions.${name}:${number}`,
  type: 'function',
  function: { name, arguments: JSON.stringify(args) },
});
const scenarios: Record<string, UpstreamAnswer> = {
  text: { chunks: ['Hel', 'lo ', 'wörld 🙂', '\n"quoted" \\ end'], usage },
  reasoning: { reasoning: ['First ', 'think.'], chunks: ['Then ', 'speak.'], usage },
  tools: {
    reasoning: ['Both at once.'],
    toolCalls: [call('weather', 0, { city: 'Казань', days: 2 }), call('time', 1, {})],
    usage,
  },
  length: { chunks: ['and so on and'], finishReason: 'length', usage },
  filter: { chunks: ['I'], finishReason: 'content_filter', usage },
  cut: { chunks: ['This will', ' not end'], usage },
  'usage-at-end': { chunks: ['Hi'], usage },
  'no-usage': { chunks: ['Hi'], usage: null },
};

beforeAll(() => {
  const asked = { stream_options: { include_usage: true }, model: 'vendor-model', tool_stream: true };
  for (const dialect of upstreamDialects) {
    const habits = upstreamHabits[dialect];
    for (const [scenario, answer] of Object.entries(scenarios)) {
      const seen = { number: 1, at: 1_790_000_000_000, body: { ...asked, reasoning_split: true } };
      const frames = framesOf(
        answer,
        seen,
        scenario === 'usage-at-end' ? { ...habits, usageAt: 'end' } : habits,
      );
      const ending = scenario === 'cut' ? [] : frames.ending;
      keepUpstream(dialect, scenario, [frames.opening, ...frames.body, ...ending].join(''));
    }
  }
  // Hosts that know neither the switch for tool arguments nor the one that splits reasoning from text.
  const seen = {
    number: 1,
    at: 1_790_000_000_000,
    body: { stream_options: asked.stream_options, model: 'vendor-model' },
  };
  for (const [dialect, name, scenario] of [
    ['zhipu', 'tools', 'tools-late'],
    ['minimax', 'reasoning', 'reasoning-in-text'],
  ] as const) {
    const frames = framesOf(scenarios[name]!, seen, upstreamHabits[dialect]);
    keepUpstream(dialect, scenario, [frames.opening, ...frames.body, ...frames.ending].join(''));
  }
});

const all = upstreamDialects.flatMap((dialect) => Object.keys(scenarios).map((name) => `${dialect} ${name}`));

describe('kept answers of vendors', () => {
  it('are there for every dialect and scenario', () => {
    const found = goldenStreams().map(({ dialect, scenario }) => `${dialect} ${scenario}`);
    expect(found).toEqual(expect.arrayContaining([...all, 'zhipu tools-late', 'minimax reasoning-in-text']));
  });

  it('are read the same however their bytes are split', async () => {
    for (const golden of goldenStreams()) {
      const whole = await replay(golden, 0);
      for (const split of ['events', 1, 7, 100] as const) {
        const other = await replay(golden, split);
        const read = ({ batches, completed }: typeof other) =>
          together(batches.flat(), completed ?? { finish: null, counters: null });
        const { pieces: _, ...expected } = read(whole);
        expect(read(other)).toMatchObject(expected);
      }
    }
  });

  it('say what they are meant to say', async () => {
    for (const golden of goldenStreams()) {
      const { batches, completed } = await replay(golden);
      const read = together(batches.flat(), completed ?? { finish: null, counters: null });
      const scenario = scenarios[golden.scenario.replace(/-late$|-in-text$/, '')]!;
      expect({ ...golden, content: read.content }).toEqual({
        ...golden,
        content: (scenario.chunks ?? []).join(''),
      });
      expect(read.reasoning.trim()).toBe((scenario.reasoning ?? []).join(''));
      expect(read.calls.map(({ id, arguments: args }) => [id, args])).toEqual(
        (scenario.toolCalls ?? []).map((one) => [
          one['id'],
          (one['function'] as { arguments: string }).arguments,
        ]),
      );
      if (golden.scenario === 'cut') expect(completed).toBeNull();
      else
        expect(read).toMatchObject({
          finish: scenario.finishReason ?? (scenario.toolCalls ? 'tool_calls' : 'stop'),
          counters: scenario.usage === null ? null : { input: 120, cached: 64, output: 40, reasoning: 12 },
        });
    }
  });

  it('come out in the chat format as the golden files say', async () => {
    for (const golden of goldenStreams()) {
      const text = await streamed(golden, new ChatStream(goldenHead, true), '/v1/chat/completions');
      expectGolden(golden, 'chat.sse', text);
      expect(text.includes('[DONE]')).toBe(golden.scenario !== 'cut');
      const body = await plain(golden, new ChatAnswer(goldenHead));
      if (body) expectGolden(golden, 'chat.json', `${JSON.stringify(body, null, 2)}\n`);
    }
  });
});
