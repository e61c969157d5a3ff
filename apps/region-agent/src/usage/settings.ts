/** How usage is measured. */
export interface UsageSettings {
  /** Length of the buckets, milliseconds: an hour, or what NEBO_USAGE_BUCKET says. The control plane must have the same. */
  bucketMs: number;
  /** Between two readings of a counter: so much a killed agent or host loses at most. */
  sampleMs: number;
  /** Between two reports of a life that goes on; its end, and the end of a bucket, are told at once. */
  reportMs: number;
}

/** @throws when a setting cannot be used */
export function usageSettings({ NEBO_USAGE_BUCKET: bucket }: NodeJS.ProcessEnv): UsageSettings {
  const seconds = Number(bucket || 3_600);
  // Hours of UTC, and parts of them that fill them.
  if (!Number.isInteger(seconds) || seconds < 5 || 3_600 % seconds !== 0)
    throw new Error('NEBO_USAGE_BUCKET must be seconds, at least 5, that divide 3600');
  const bucketMs = seconds * 1_000;
  const sampleMs = Math.min(10_000, bucketMs / 5);
  return { bucketMs, sampleMs, reportMs: Math.min(60_000, bucketMs / 2) };
}
