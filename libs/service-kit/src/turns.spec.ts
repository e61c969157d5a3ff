import { Turns } from './turns.js';

describe('turns of large work', () => {
  it('come one after the other, in order, with room for everybody else between', async () => {
    const turns = new Turns();
    const seen: string[] = [];
    const work = ['a', 'b', 'c'].map(async (name) => {
      for (const step of [1, 2]) {
        await turns.next();
        seen.push(`${name}${step}`);
      }
    });
    let others = 0;
    let isDone = false;
    const other = (async () => {
      while (!isDone) {
        await new Promise(setImmediate);
        others += 1;
        seen.push('.');
      }
    })();
    await Promise.all(work);
    isDone = true;
    await other;
    expect(seen.filter((one) => one !== '.')).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'c2']);
    // Never two large steps without a look at the rest.
    expect(seen.join('')).not.toMatch(/[abc]\d[abc]\d/);
    expect(others).toBeGreaterThanOrEqual(5);
  });

  it('begin again after a pause', async () => {
    const turns = new Turns();
    await turns.next();
    await new Promise((resolve) => setTimeout(resolve, 20));
    await turns.next();
  });
});
