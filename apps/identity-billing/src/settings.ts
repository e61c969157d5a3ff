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
  /** Below this much an account is told to be low, 10⁻⁹ rubles. */
  readonly balanceLow: Nano;
  /** Hours that what is charged by time goes on with nothing left. */
  readonly graceHours: number;
  /** Days that what belongs to a suspended account is kept. */
  readonly keepDays: number;
  /** Seconds between two comparisons of the accounts' standing with their money. */
  readonly standingSeconds: number;
  /** Seconds that a router may hold from a slice without hearing of it again. */
  readonly sliceTermSeconds: number;

  constructor(@Inject(RUNTIME) { config }: Runtime) {
    this.realTopupMin = rubles(config, 'NEBO_REAL_TOPUP_MIN', '100');
    this.keyPrefix = prefix(config, 'NEBO_KEY_PREFIX', 'nebo_live_');
    this.inferenceKeyPrefix = prefix(config, 'NEBO_INFERENCE_KEY_PREFIX', 'neboai_live_');
    this.reconcileSeconds = config.int('NEBO_RECONCILE_SECONDS', 3_600, { min: 1, max: 86_400 });
    this.pricesFile = config.optional('NEBO_PRICES_FILE');
    this.kafkaBrokers = config.list('NEBO_KAFKA_BROKERS');
    this.balanceLow = rubles(config, 'NEBO_BALANCE_LOW', '100');
    this.graceHours = config.int('NEBO_GRACE_HOURS', 72, { max: 8_760 });
    this.keepDays = config.int('NEBO_KEEP_DAYS', 14, { max: 3_650 });
    this.standingSeconds = config.int('NEBO_STANDING_SECONDS', 15, { min: 1, max: 3_600 });
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
