import { parseWakeAddress } from '@nebo/contracts/wake';
import { type WakeDoorOptions } from './door.js';

/**
 * `NEBO_WAKE` (`unix:/path` or `http://host:port`) and `NEBO_WAKE_TOKEN`, the same at a region's agent and its edges.
 * @returns null when replicas are not to sleep here, since nobody could wake them
 * @throws Error that names the setting
 */
export function wakeDoorOptions(env: Record<string, string | undefined>): WakeDoorOptions | null {
  const { NEBO_WAKE: text = '', NEBO_WAKE_TOKEN: token = '' } = env;
  if (text === '') return null;
  let address;
  try {
    address = parseWakeAddress(text);
  } catch (error) {
    throw new Error(`NEBO_WAKE: ${(error as Error).message}`, { cause: error });
  }
  if ('socketPath' in address ? token !== '' && token.length < 32 : token.length < 32)
    throw new Error('NEBO_WAKE_TOKEN must have at least 32 characters; only a socket may do without');
  return { address, token: token === '' ? null : token };
}
