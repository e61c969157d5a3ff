import { Places } from '../src/system/timing.js';

describe('places', () => {
  const never = new AbortController().signal;
  /** Work that ends when it is told to, and tells when it began. */
  function works() {
    const begun: string[] = [];
    const ends: (() => void)[] = [];
    const make = (name: string) => () =>
      new Promise<void>((resolve) => {
        begun.push(name);
        ends.push(resolve);
      });
    const end = async () => {
      ends.shift()!();
      await new Promise((resolve) => setImmediate(resolve));
    };
    return { begun, make, end };
  }

  it('are given in the order asked, and an abort while waiting leaves the queue', async () => {
    const { begun, make, end } = works();
    const places = new Places(1);
    const gone = new AbortController();
    const all = ['a', 'b'].map((name) => places.run(make(name), never));
    const left = places.run(make('c'), gone.signal);
    all.push(places.run(make('d'), never));
    gone.abort();
    await expect(left).rejects.toThrow();
    for (let count = 0; count < 3; count += 1) await end();
    await Promise.all(all);
    expect(begun).toEqual(['a', 'b', 'd']);
  });

  it('go to the owner with the least under way: who has much to do keeps nobody waiting', async () => {
    const { begun, make, end } = works();
    const places = new Places(2);
    const asked = ['much', 'much', 'much', 'much', 'little', 'other', 'little'];
    const all = asked.map((whose, at) => places.run(make(`${whose} ${at}`), never, whose));
    for (let count = 0; count < asked.length; count += 1) await end();
    await Promise.all(all);
    expect(begun).toEqual(['much 0', 'much 1', 'little 4', 'much 2', 'other 5', 'much 3', 'little 6']);
  });
});
