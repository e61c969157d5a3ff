import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ReplicaHold, type WakeAddress, type WakeDesk, WakeRefused } from '@nebo/contracts';
import { HttpWakeDesk } from '@nebo/edge';
import { WakeDoor, wakeDoorOptions } from '@nebo/region-agent';

/** Edge and agent as two processes have them: a client, a door, and what passes between. */
describe('the door by which edges wake apps', () => {
  const held: ReplicaHold = {
    host: '127.0.0.1',
    port: 8080,
    life: 3,
    started: true,
    idle_ms: 5_000,
    lease_ms: 30_000,
  };
  let folder: string;
  let calls: string[];
  /** Aborts of holds that were not answered. */
  let left: number;
  let answer: (id: string) => Promise<ReplicaHold>;
  const desk: WakeDesk = {
    hold: async (holder, id, signal) => {
      calls.push(`hold ${holder} ${id}`);
      signal.addEventListener('abort', () => left++);
      return answer(id);
    },
    renew: async (holder, id) => (calls.push(`renew ${holder} ${id}`), id === 'gone' ? null : held),
    release: async (holder, id) => (calls.push(`release ${holder} ${id}`), true),
    onLost: () => () => undefined,
  };
  const ends: (() => Promise<unknown>)[] = [];
  const never = new AbortController().signal;
  const door = async (address: WakeAddress, token: string | null = null) => {
    const made = new WakeDoor(desk, { address, token });
    const { port } = await made.start();
    ends.push(() => made.stop());
    return { made, port };
  };
  const client = (address: WakeAddress, token: string | null = null) => {
    const made = new HttpWakeDesk(address, token);
    ends.push(() => made.close());
    return made;
  };
  const until = async (condition: () => boolean) => {
    for (const end = Date.now() + 10_000; !condition();) {
      if (Date.now() > end) throw new Error(`never: ${condition.toString()}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'nebo-door-'));
    calls = [];
    left = 0;
    answer = async () => held;
  });
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
    await rm(folder, { recursive: true, force: true });
  });

  it('passes holds, renewals and releases on, over a socket that only its owner may open', async () => {
    const socketPath = join(folder, 'wake.sock');
    // Left by an agent that was killed.
    await writeFile(socketPath, '');
    await door({ socketPath });
    expect((await stat(socketPath)).mode & 0o777).toBe(0o600);
    const edge = client({ socketPath });
    expect(await edge.hold('e.1', 'r/1', never)).toEqual(held);
    expect(await edge.renew('e.1', 'r/1')).toEqual(held);
    expect(await edge.renew('e.1', 'gone')).toBeNull();
    expect(await edge.release('e.1', 'r/1')).toBe(true);
    expect(calls).toHaveLength(4);
  });

  it('refusals come through with their word and their time', async () => {
    const { port } = await door({ host: '127.0.0.1', port: 0 }, 'a'.repeat(32));
    const edge = client({ host: '127.0.0.1', port: port! }, 'a'.repeat(32));
    answer = () => Promise.reject(new WakeRefused('crashed', 7_000));
    await expect(edge.hold('e.1', 'r', never)).rejects.toMatchObject({
      code: 'crashed',
      retryAfterMs: 7_000,
    });
    answer = () => Promise.reject(new Error('a fault of the agent'));
    await expect(edge.hold('e.1', 'r', never)).rejects.toMatchObject({ code: 'away' });
  });

  it('who has not the token, or another one, wakes nothing', async () => {
    const { port } = await door({ host: '127.0.0.1', port: 0 }, 'a'.repeat(32));
    for (const token of [null, 'b'.repeat(32), 'a'.repeat(31)]) {
      const edge = client({ host: '127.0.0.1', port: port! }, token);
      await expect(edge.hold('e.1', 'r', never)).rejects.toMatchObject({ code: 'away' });
    }
    const headers = { authorization: `Bearer ${'a'.repeat(32)}` };
    const url = `http://127.0.0.1:${port}/wake/v1/replicas/r`;
    expect((await fetch(`${url}/hold?holder=x`, { method: 'POST' })).status).toBe(401);
    expect((await fetch(`${url}/hold`, { method: 'POST', headers })).status).toBe(404);
    expect((await fetch(`${url}/burn?holder=x`, { method: 'POST', headers })).status).toBe(404);
    expect((await fetch(`${url}/hold?holder=x`, { headers })).status).toBe(404);
    expect(calls).toEqual([]);
  });

  it('nobody there: away; a caller that leaves is seen by the agent', async () => {
    const socketPath = join(folder, 'wake.sock');
    const edge = client({ socketPath });
    await expect(edge.hold('e.1', 'r', never)).rejects.toMatchObject({ code: 'away' });
    await door({ socketPath });
    answer = () => new Promise(() => undefined);
    const gone = new AbortController();
    const waiting = edge.hold('e.1', 'r', gone.signal);
    await until(() => calls.length === 1);
    gone.abort(new Error('left'));
    await expect(waiting).rejects.toThrow('left');
    await until(() => left === 1);
  });

  it('an agent that ends takes all holds with it, also one under way; the next agent is found', async () => {
    const socketPath = join(folder, 'wake.sock');
    const first = await door({ socketPath });
    const edge = client({ socketPath });
    let lost = 0;
    const unsubscribe = edge.onLost(() => lost++);
    await edge.hold('e.1', 'r', never);
    answer = () => new Promise(() => undefined);
    const waiting = edge.hold('e.2', 'r', never);
    waiting.catch(() => undefined);
    await until(() => calls.length === 2);
    await first.made.stop();
    await expect(waiting).rejects.toMatchObject({ code: 'away' });
    await until(() => lost === 1);
    await expect(edge.renew('e.1', 'r')).rejects.toMatchObject({ code: 'away' });
    answer = async () => ({ ...held, life: 1 });
    await door({ socketPath });
    expect(await edge.hold('e.3', 'r', never)).toMatchObject({ life: 1 });
    unsubscribe();
  });

  it('settings: an address on the network needs a token', () => {
    expect(wakeDoorOptions({})).toBeNull();
    expect(wakeDoorOptions({ NEBO_WAKE: 'unix:/run/w.sock' })).toEqual({
      address: { socketPath: '/run/w.sock' },
      token: null,
    });
    expect(() => wakeDoorOptions({ NEBO_WAKE: 'http://127.0.0.1:4010' })).toThrow('NEBO_WAKE_TOKEN');
    expect(() => wakeDoorOptions({ NEBO_WAKE: 'unix:/run/w.sock', NEBO_WAKE_TOKEN: 'short' })).toThrow(
      'NEBO_WAKE_TOKEN',
    );
    expect(() => wakeDoorOptions({ NEBO_WAKE: 'ftp://x' })).toThrow('NEBO_WAKE: ');
  });
});
