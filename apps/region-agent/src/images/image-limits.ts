import { LayerBudget } from '@nebo/archive';

/** What an image may be. Sizes in bytes. */
export interface ImageLimits {
  /** All layers as they are pulled. */
  compressedBytes: number;
  /** All layers unpacked. */
  expandedBytes: number;
  entries: number;
  /** Expanded : compressed of one layer, looked at once `ratioAfterBytes` have been expanded. */
  ratio: number;
  ratioAfterBytes: number;
  /** Unpacked images kept on this host. */
  cacheBytes: number;
}

const MiB = 1024 * 1024;

export const defaultImageLimits: Readonly<ImageLimits> = {
  compressedBytes: 1024 * MiB,
  expandedBytes: 4 * 1024 * MiB,
  entries: 400_000,
  ratio: 200,
  ratioAfterBytes: 64 * MiB,
  cacheBytes: 20 * 1024 * MiB,
};

const settings: Readonly<Record<string, keyof ImageLimits>> = {
  NEBO_IMAGE_MAX_COMPRESSED: 'compressedBytes',
  NEBO_IMAGE_MAX_EXPANDED: 'expandedBytes',
  NEBO_IMAGE_MAX_ENTRIES: 'entries',
  NEBO_IMAGE_CACHE_BYTES: 'cacheBytes',
};

/**
 * Limits from the environment: `NEBO_IMAGE_MAX_COMPRESSED`, `_EXPANDED`, `_ENTRIES` and `NEBO_IMAGE_CACHE_BYTES`.
 * @throws Error that names the setting when it is no positive integer
 */
export function imageLimitsFromEnv(env: Record<string, string | undefined> = process.env): ImageLimits {
  const limits = { ...defaultImageLimits };
  for (const [name, key] of Object.entries(settings)) {
    const text = env[name];
    if (text === undefined || text === '') continue;
    const value = Number(text);
    if (!Number.isSafeInteger(value) || value <= 0)
      throw new Error(`${name} must be a positive integer, not "${text}"`);
    limits[key] = value;
  }
  return limits;
}

export const budgetOf = ({ expandedBytes, ratio, ratioAfterBytes }: ImageLimits): LayerBudget =>
  new LayerBudget(expandedBytes, ratio, ratioAfterBytes);
