import { ObjectEnd } from './object-end.js';

describe('the end of a JSON object', () => {
  it.each(['{}', '{"a":1}', ' {"a":[{"b":{}}]}', '{"a":"}\\"}{\\\\"}', '{"a":["]"]}'])(
    'is at the end of %s',
    (json) => {
      const end = new ObjectEnd();
      for (const char of json) {
        expect(end.isReached).toBe(false);
        end.push(char);
      }
      expect(end.isReached).toBe(true);
      end.push('{');
      expect(end.isReached).toBe(true);
    },
  );

  it.each(['', '{', '{"a":"}', '{"a":{}', '"}"'])('is not in %s', (json) => {
    const end = new ObjectEnd();
    end.push(json);
    expect(end.isReached).toBe(false);
  });
});
