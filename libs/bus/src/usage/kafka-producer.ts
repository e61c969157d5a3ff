import { Kafka, logLevel, type KafkaConfig, type Producer } from 'kafkajs';
import { usageTopic, type UsageProducer, type UsageRecord } from './usage-relay.js';

export interface KafkaUsageOptions {
  /** `host:port` list (`NEBO_KAFKA_BROKERS`). */
  brokers: readonly string[];
  topic?: string;
  clientId?: string;
  ssl?: KafkaConfig['ssl'];
  sasl?: KafkaConfig['sasl'];
}

/**
 * A producer of usage records on Kafka: idempotent, keyed by account, the record's id in the header `record-id` and in
 * the payload. Each connect makes a new kafkajs producer, since one that failed for good cannot be revived.
 */
export class KafkaUsageProducer implements UsageProducer {
  private readonly kafka: Kafka;
  private readonly topic: string;
  private producer: Producer | undefined;

  constructor(options: KafkaUsageOptions) {
    this.topic = options.topic ?? usageTopic;
    this.kafka = new Kafka({
      clientId: options.clientId ?? 'nebo-usage',
      brokers: [...options.brokers],
      ssl: options.ssl,
      sasl: options.sasl,
      // The relay reports and retries; kafkajs would print every failed attempt to the console.
      logLevel: logLevel.NOTHING,
      connectionTimeout: 3_000,
      requestTimeout: 10_000,
      retry: { retries: 3, initialRetryTime: 200, maxRetryTime: 2_000 },
    });
  }

  async connect(): Promise<void> {
    await this.disconnect();
    const producer = this.kafka.producer({
      idempotent: true,
      maxInFlightRequests: 1,
      // Bounded, so that the relay sees a failure and health shows it; the relay itself never gives up.
      retry: { retries: 5, initialRetryTime: 200, maxRetryTime: 2_000 },
    });
    await producer.connect();
    this.producer = producer;
  }

  async send(records: readonly UsageRecord[]): Promise<void> {
    if (this.producer === undefined) throw new Error('the Kafka producer is not connected');
    await this.producer.send({
      topic: this.topic,
      acks: -1,
      messages: records.map(({ id, account, payload }) => ({
        key: account,
        value: JSON.stringify({ ...payload, id, account }),
        headers: { 'record-id': id },
      })),
    });
  }

  async disconnect(): Promise<void> {
    const { producer } = this;
    this.producer = undefined;
    await producer?.disconnect();
  }
}
