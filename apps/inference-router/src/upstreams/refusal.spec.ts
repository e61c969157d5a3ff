import { maskWords, readRetryAfter, refusalWords } from './refusal.js';

const provider = { apiKey: 'key-1234', baseUrl: 'https://llm.internal.example:8443/v1' };

describe("a vendor's words about a request", () => {
  it.each([
    ['the key', 'key-1234 cannot read messages[0]', '******** cannot read messages[0]'],
    [
      'the host',
      'POST https://LLM.internal.example:8443/v1/chat failed',
      'POST https://********/v1/chat failed',
    ],
    ['the host without its port', 'llm.internal.example says no', '******** says no'],
    [
      'an organisation',
      'limit of org-Ab12cd34 in organization org_99z',
      'limit of ******** in organization ********',
    ],
    ['an account', 'Account ID: 4711-0815 is not verified', 'Account ID: ******** is not verified'],
    ['a project', "project='proj_x1y2' has no access", "project='********' has no access"],
    ['a tenant', 'tenant <a1b2c3d4> is limited', 'tenant <********> is limited'],
  ])('do not show %s', (_what, words, shown) => {
    expect(maskWords(words, provider)).toBe(shown);
  });

  it.each([
    'messages[3].content: the user message must not be empty',
    "Invalid schema for function 'f1': key 'x2' is missing",
    'max_tokens must be at most 131072',
    'user messages may hold at most 20 images; team mode is off',
    'Failed to load https://pictures.example/a1.png',
  ])('stay as they are where they are about the request: %s', (words) => {
    expect(maskWords(words, provider)).toBe(words);
  });

  it('are the message of the usual bodies, and at most 500 characters', () => {
    expect(refusalWords('{"error":{"message":"a"}}', provider)).toBe('a');
    expect(refusalWords('{"error":"b"}', provider)).toBe('b');
    expect(refusalWords('{"message":"c"}', provider)).toBe('c');
    expect(refusalWords('{"error":{"message":4}}', provider)).toBe('');
    expect(refusalWords('<html>key-1234</html>', provider)).toBe('');
    expect(refusalWords(JSON.stringify({ message: 'x'.repeat(2_000) }), provider)).toHaveLength(500);
  });
});

describe('Retry-After', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');

  it.each([
    ['7', 7],
    ['0.2', 1],
    ['86400', 3_600],
    ['Thu, 01 Jan 2026 00:00:30 GMT', 30],
    ['Wed, 31 Dec 2025 00:00:00 GMT', null],
    ['0', null],
    ['-5', null],
    ['soon', null],
    ['', null],
  ])('%s', (text, seconds) => {
    expect(readRetryAfter(text, now)).toBe(seconds);
  });
});
