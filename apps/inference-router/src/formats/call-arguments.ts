/** Field that holds what a model wrote instead of an object of arguments. */
export const rawField = 'raw_arguments';

/**
 * The arguments of a call of the history, as vendors take them: JSON. A call without arguments comes back empty, and one that the
 * ceiling of its answer cut comes back as the beginning of some: vendors that read them would refuse the rest of the
 * conversation. The model sees what it had written, under `raw_arguments`.
 * @param value the client's field: a text, or what some clients send as it is
 */
export function callArguments(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value ?? {});
  if (value.trim() === '') return '{}';
  try {
    JSON.parse(value);
    return value;
  } catch {
    return JSON.stringify({ [rawField]: value });
  }
}
