import { Kafka, logLevel } from 'kafkajs';
import { canStartKafka, startKafka } from './kafka.js';
import { waitFor } from './parts.js';

const { found, reason } = await canStartKafka();
if (found === null) process.stderr.write(`skipped kafka.spec: ${reason}\n`);
const suite = found === null ? describe.skip : describe;

suite('startKafka', () => {
  it('is a broker that keeps messages over kill and restart', async () => {
    const part = await startKafka();
    const kafka = new Kafka({
      brokers: [...part.brokers],
      logLevel: logLevel.NOTHING,
      retry: { retries: 20, maxRetryTime: 1_000 },
    });
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    await producer.send({
      topic: 'nebo.usage.v1',
      acks: -1,
      messages: [1, 2, 3].map((n) => ({ key: 'account', value: String(n) })),
    });
    await part.kill();
    await part.restart();
    await producer.send({ topic: 'nebo.usage.v1', acks: -1, messages: [{ key: 'account', value: '4' }] });
    await producer.disconnect();

    const consumer = kafka.consumer({ groupId: 'test' });
    const seen: string[] = [];
    await consumer.connect();
    await consumer.subscribe({ topic: 'nebo.usage.v1', fromBeginning: true });
    await consumer.run({ eachMessage: async ({ message }) => void seen.push(message.value!.toString()) });
    await waitFor('four messages', 60_000, async () => (seen.length >= 4 ? true : undefined), 50);
    await consumer.disconnect();
    expect(seen).toEqual(['1', '2', '3', '4']);
    await part.stop();
  }, 300_000);
});

describe('canStartKafka', () => {
  it('gives yes or a reason, never both', () => {
    expect((found === null) !== (reason === null)).toBe(true);
  });
});
