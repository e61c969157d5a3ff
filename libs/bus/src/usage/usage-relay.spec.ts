import { randomUUID } from 'node:crypto';
import { canStartKafka, startKafka, type KafkaPart } from '@nebo/test-kit';
import { Kafka, logLevel, type KafkaMessage } from 'kafkajs';
import { pause, until } from '../../test/bus.contract.js';
import { KafkaUsageProducer } from './kafka-producer.js';
import {
  UsageRelay,
  usageTopic,
  type UsageProducer,
  type UsageRecord,
  type UsageSource,
} from './usage-relay.js';

const backoff = { baseMs: 5, maxMs: 20 };

class MemorySource implements UsageSource {
  unsent: UsageRecord[] = [];
  marked: string[] = [];
  failMark = 0;
  add(count: number, account = 'account-1'): UsageRecord[] {
    const more = Array.from({ length: count }, () => ({ id: randomUUID(), account, payload: { tokens: 5 } }));
    this.unsent.push(...more);
    return more;
  }
  async fetchUnsent(limit: number): Promise<UsageRecord[]> {
    return this.unsent.slice(0, limit);
  }
  async markSent(ids: readonly string[]): Promise<void> {
    if (this.failMark > 0) {
      this.failMark -= 1;
      throw new Error('PostgreSQL is away');
    }
    this.marked.push(...ids);
    this.unsent = this.unsent.filter((record) => !ids.includes(record.id));
  }
}

class FakeProducer implements UsageProducer {
  failConnect = 0;
  failSend = 0;
  connects = 0;
  disconnects = 0;
  acknowledged: string[] = [];
  async connect(): Promise<void> {
    this.connects += 1;
    if (this.failConnect > 0) {
      this.failConnect -= 1;
      throw new Error('no broker');
    }
  }
  async send(records: readonly UsageRecord[]): Promise<void> {
    if (this.failSend > 0) {
      this.failSend -= 1;
      throw new Error('not enough replicas');
    }
    this.acknowledged.push(...records.map((record) => record.id));
  }
  async disconnect(): Promise<void> {
    this.disconnects += 1;
  }
}

describe('usage relay', () => {
  const start = (source: UsageSource, producer: UsageProducer) => {
    const errors: string[] = [];
    const relay = new UsageRelay(source, producer, {
      pollMs: 20,
      batch: 10,
      backoff,
      onError: (error) => errors.push(error.message),
    });
    relay.start();
    return { relay, errors };
  };

  it('sends everything in batches and marks it after the acknowledgement', async () => {
    const [source, producer] = [new MemorySource(), new FakeProducer()];
    const records = source.add(35);
    const { relay } = start(source, producer);
    await until('all', () => source.marked.length === 35);
    expect(producer.acknowledged).toEqual(records.map((record) => record.id));
    source.add(1);
    relay.wake();
    await until('one more', () => source.marked.length === 36);
    expect(relay.status()).toEqual({ connected: true, detail: 'connected', sent: 36 });
    await relay.stop();
    expect(relay.status()).toMatchObject({ connected: false, detail: 'stopped' });
    expect(producer.disconnects).toBe(1);
  });

  it('brokers that are away are tried for ever and shown', async () => {
    const [source, producer] = [new MemorySource(), new FakeProducer()];
    producer.failConnect = 8;
    source.add(1);
    const { relay, errors } = start(source, producer);
    await until('a failure', () => relay.status().detail === 'trying again: no broker');
    expect(relay.status().connected).toBe(false);
    await until('sent', () => source.marked.length === 1);
    expect(errors).toHaveLength(8);
    await relay.stop();
  });

  it('marks nothing that was not acknowledged', async () => {
    const [source, producer] = [new MemorySource(), new FakeProducer()];
    producer.failSend = 3;
    source.add(2);
    const { relay, errors } = start(source, producer);
    await until('three failures', () => errors.length === 3);
    expect(source.marked.length === 0 || producer.acknowledged.length === 2).toBe(true);
    await until('sent', () => source.marked.length === 2);
    await relay.stop();
    // Each failure begins with a new producer.
    expect(producer.connects).toBe(4);
  });

  it('sends again what was acknowledged but could not be marked: at least once', async () => {
    const [source, producer] = [new MemorySource(), new FakeProducer()];
    source.failMark = 2;
    const [record] = source.add(1);
    const { relay } = start(source, producer);
    await until('marked', () => source.marked.length === 1);
    expect(producer.acknowledged).toEqual([record!.id, record!.id, record!.id]);
    await relay.stop();
  });
});

/** Brokers named by `NEBO_TEST_KAFKA=host:port`, else one of test-kit. */
const named = process.env['NEBO_TEST_KAFKA'];
const able = named ? { found: true, reason: null } : await canStartKafka();
const withKafka = able.found === null ? describe.skip : describe;

withKafka(able.found === null ? `Kafka (skipped: ${able.reason})` : 'Kafka', () => {
  let part: KafkaPart | undefined;
  let brokers: string[];

  beforeAll(async () => {
    if (named) brokers = [named];
    else {
      part = await startKafka();
      brokers = [...part.brokers];
    }
  }, 180_000);
  afterAll(() => part?.stop());

  /** Everything in the topic whose id is among the wanted ones, once `count` of them are there. */
  const read = async (topic: string, ids: ReadonlySet<string>) => {
    const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING });
    const consumer = kafka.consumer({ groupId: `test-${randomUUID()}` });
    const got: KafkaMessage[] = [];
    const seen = new Set<string>();
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ message }) => {
        const id = String(message.headers?.['record-id']);
        if (!ids.has(id)) return;
        seen.add(id);
        got.push(message);
      },
    });
    await until('all records', () => seen.size === ids.size, 60_000);
    await consumer.disconnect();
    return got;
  };

  it('exports records keyed by account with their id, and goes on after the broker was killed', async () => {
    const source = new MemorySource();
    const first = [...source.add(20, 'account-1'), ...source.add(20, 'account-2')];
    const relay = new UsageRelay(source, new KafkaUsageProducer({ brokers }), { pollMs: 50, backoff });
    relay.start();
    await until('the first records', () => source.marked.length === 40, 60_000);
    const wanted = [...first];
    if (part !== undefined) {
      await part.kill();
      wanted.push(...source.add(10, 'account-1'));
      relay.wake();
      await until('the loss shows', () => !relay.status().connected, 60_000);
      await part.restart();
      await until('the rest', () => source.marked.length === 50, 120_000);
    }
    expect(relay.status().connected).toBe(true);
    await relay.stop();
    const messages = await read(usageTopic, new Set(wanted.map((record) => record.id)));
    const byId = new Map(wanted.map((record) => [record.id, record]));
    for (const message of messages) {
      const record = byId.get(String(message.headers!['record-id']))!;
      expect(String(message.key)).toBe(record.account);
      expect(JSON.parse(String(message.value))).toEqual({
        tokens: 5,
        id: record.id,
        account: record.account,
      });
    }
    await pause(10);
  }, 240_000);
});
