import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Nano, parseRubles, type TariffPlanInfo } from '@nebo/contracts';
import { ConfigError } from '@nebo/service-kit';
import { parse } from 'yaml';

/** One price as the file says it. */
export interface FilePrice {
  id: string;
  /** 10⁻⁹ rubles per unit. */
  amount: Nano;
  unit: string;
}

export interface PriceFile {
  prices: FilePrice[];
  plans: TariffPlanInfo[];
}

const ownName = 'deploy/config/prices.yaml';

/**
 * The installation's price file: in the repository, beside the package in an image, or under the working folder. From
 * `src` and from `dist` the way is equally long.
 */
export function findPriceFile(): string {
  const places = [
    fileURLToPath(new URL(`../../../../${ownName}`, import.meta.url)),
    fileURLToPath(new URL(`../../${ownName}`, import.meta.url)),
    `${process.cwd()}/${ownName}`,
  ];
  const found = places.find((place) => existsSync(place));
  if (!found) throw new ConfigError(`NEBO_PRICES_FILE is not set and there is no ${ownName}`);
  return found;
}

/**
 * Reads and checks a price file.
 * @throws ConfigError naming the file and what is wrong in it
 */
export function readPriceFile(path: string): PriceFile {
  try {
    return priceFileOf(parse(readFileSync(path, 'utf8')));
  } catch (error) {
    throw new ConfigError(`NEBO_PRICES_FILE: ${path}: ${(error as Error).message}`);
  }
}

/** @throws RangeError or TypeError for a wrong field */
export function priceFileOf(content: unknown): PriceFile {
  const root = mapOf(content, 'the file');
  const known = ['vm_plans', 'month', 'hour', 'tariff_plans', 'models'];
  for (const name of Object.keys(root)) {
    if (!known.includes(name))
      throw new RangeError(`there is no section "${name}"; sections are ${known.join(', ')}`);
  }
  const prices: FilePrice[] = [];
  const add = (id: string, value: unknown, unit: string) =>
    prices.push({ id, amount: amountOf(value, id), unit });
  for (const [plan, value] of entriesOf(root, 'vm_plans')) {
    const { month, hour } = mapOf(value, `vm_plans.${plan}`);
    add(`vm.${plan}.month`, month, 'month');
    add(`vm.${plan}.hour`, hour, 'hour');
  }
  for (const [id, value] of entriesOf(root, 'month')) add(`${id}.month`, value, 'month');
  for (const [id, value] of entriesOf(root, 'hour')) add(`${id}.hour`, value, 'hour');
  for (const [model, value] of entriesOf(root, 'models')) {
    const { input, cache_read, output } = mapOf(value, `models.${model}`);
    add(`model.${model}.input`, input, 'million tokens');
    add(`model.${model}.cache_read`, cache_read, 'million tokens');
    add(`model.${model}.output`, output, 'million tokens');
  }
  const plans = entriesOf(root, 'tariff_plans').map(([id, value], index): TariffPlanInfo => {
    const plan = mapOf(value, `tariff_plans.${id}`);
    add(`tariff.${id}.month`, plan['month'], 'month');
    return {
      id,
      name: typeof plan['name'] === 'string' ? plan['name'] : id,
      is_default: index === 0,
      active_cpu_hours: hoursOf(plan['active_cpu_hours'], `tariff_plans.${id}.active_cpu_hours`),
      memory_gb_hours: hoursOf(plan['memory_gb_hours'], `tariff_plans.${id}.memory_gb_hours`),
    };
  });
  return { prices, plans };
}

function mapOf(value: unknown, where: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new TypeError(`${where} must be a mapping`);
  return value as Record<string, unknown>;
}

const entriesOf = (root: Record<string, unknown>, section: string): [string, unknown][] =>
  root[section] === undefined || root[section] === null ? [] : Object.entries(mapOf(root[section], section));

function amountOf(value: unknown, where: string): Nano {
  // A YAML number has passed through a float: only text is exact.
  if (typeof value !== 'string') throw new TypeError(`${where}: a price is text in quotes, like "60.00"`);
  const amount = parseRubles(value);
  if (amount < 0n || amount >= 10n ** 18n)
    throw new RangeError(`${where}: a price lies between 0 and a milliard rubles`);
  return amount;
}

function hoursOf(value: unknown, where: string): number {
  if (!Number.isInteger(value) || (value as number) < 0)
    throw new RangeError(`${where} must be a whole number of hours`);
  return value as number;
}
