import { DeliveryRoom } from './delivery-room.js';

describe('the room for bodies of deliveries', () => {
  const slow = () => {
    let end = () => {};
    const ended = new Promise<void>((resolve) => (end = resolve));
    return { end, work: () => ended };
  };

  it('one account whose bodies do not come leaves places to others, and gives its own back', async () => {
    const room = new DeliveryRoom();
    const hers = Array.from({ length: 10 }, slow);
    let begun = 0;
    const all = hers.map(({ work }) =>
      room.in('her', () => {
        begun += 1;
        return work();
      }),
    );
    expect(await room.in('his', () => Promise.resolve('read'))).toBe('read');
    expect(begun).toBe(4);
    for (const { end } of hers) end();
    await Promise.all(all);
    expect(begun).toBe(10);
    expect(await room.in('her', () => Promise.reject(new Error('away'))).catch(String)).toBe('Error: away');
    expect(await room.in('her', () => Promise.resolve('read'))).toBe('read');
  });

  it('turns away what would wait without end, of one account before it is so of all', async () => {
    const room = new DeliveryRoom();
    const { end, work } = slow();
    const all = Array.from({ length: 504 }, () => room.in('her', work));
    await expect(room.in('her', work)).rejects.toMatchObject({ status: 503 });
    expect(await room.in('his', () => Promise.resolve('read'))).toBe('read');
    end();
    await Promise.all(all);
  });
});
