import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { findNats, startNats, type NatsPart } from './nats.js';

const { found, reason } = findNats();
if (found === null) process.stderr.write(`skipped nats.spec: ${reason}\n`);
const suite = found === null ? describe.skip : describe;

async function messages(part: NatsPart): Promise<number | null> {
  const nc = await connect({ servers: part.url });
  try {
    const manager = await jetstreamManager(nc);
    return (await manager.streams.info('S')).state.messages;
  } catch {
    return null;
  } finally {
    await nc.close();
  }
}

suite('startNats', () => {
  it('keeps a JetStream over kill and restart, loses it by wipe, keeps its url', async () => {
    const part = await startNats();
    const nc = await connect({ servers: part.url });
    await (await jetstreamManager(nc)).streams.add({ name: 'S', subjects: ['s.>'] });
    await jetstream(nc).publish('s.one', 'x');
    await nc.close();
    expect(await messages(part)).toBe(1);
    await part.kill();
    await expect(connect({ servers: part.url, reconnect: false })).rejects.toThrow();
    await part.restart();
    expect(await messages(part)).toBe(1);
    await part.restart();
    expect(await messages(part)).toBe(1);
    await part.wipe();
    expect(await messages(part)).toBeNull();
    await part.stop();
    await part.stop();
    await expect(connect({ servers: part.url, reconnect: false })).rejects.toThrow();
  });

  it('starts three at once', async () => {
    const parts = await Promise.all([1, 2, 3].map(() => startNats()));
    expect(new Set(parts.map((part) => part.url)).size).toBe(3);
    await Promise.all(parts.map((part) => part.stop()));
  });
});

describe('findNats', () => {
  it('gives a path or a reason, never both', () => {
    expect((found === null) !== (reason === null)).toBe(true);
  });
});
