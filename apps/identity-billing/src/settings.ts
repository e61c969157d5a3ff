import { Inject, Injectable } from '@nestjs/common';
import { type Nano, parseRubles } from '@nebo/contracts';
import { type Config, ConfigError, RUNTIME, type Runtime } from '@nebo/service-kit';

/** Settings of this service, read once; a wrong one stops the start and is named. */
@Injectable()
export class Settings {
  /** Smallest real top-up that unlocks the credits, 10⁻⁹ rubles. */
  readonly realTopupMin: Nano;
  readonly keyPrefix: string;
  readonly inferenceKeyPrefix: string;
  /** Seconds between two reconciliations of the ledger. */
  readonly reconcileSeconds: number;
  /** Path of the price file, when another than the installation's own is wanted. */
  readonly pricesFile: string | undefined;
  readonly kafkaBrokers: readonly string[];
  /** Seconds that a router may hold from a slice without hearing of it again. */
  readonly sliceTermSeconds: number;

  constructor(@Inject(RUNTIME) { config }: Runtime) {
    this.realTopupMin = rubles(config, 'NEBO_REAL_TOPUP_MIN', '100');
    this.keyPrefix = prefix(config, 'NEBO_KEY_PREFIX', 'nebo_live_');
    this.inferenceKeyPrefix = prefix(config, 'NEBO_INFERENCE_KEY_PREFIX', 'neboai_live_');
    this.reconcileSeconds = config.int('NEBO_RECONCILE_SECONDS', 3_600, { min: 1, max: 86_400 });
    this.pricesFile = config.optional('NEBO_PRICES_FILE');
    this.kafkaBrokers = config.list('NEBO_KAFKA_BROKERS');
    this.sliceTermSeconds = config.int('NEBO_SLICE_TERM', 30, { min: 1, max: 3_600 });
  }
}

function rubles(config: Config, name: string, fallback: string): Nano {
  const text = config.text(name, fallback);
  try {
    const amount = parseRubles(text);
    if (amount > 0n) return amount;
  } catch {
    // Told below.
  }
  throw new ConfigError(`${name} must be an amount in rubles above zero, not "${text}"`);
}

function prefix(config: Config, name: string, fallback: string): string {
  const text = config.text(name, fallback);
  if (!/^[a-z0-9_]{1,40}live_$/.test(text))
    throw new ConfigError(`${name} must be small letters and end in live_, not "${text}"`);
  return text;
}
