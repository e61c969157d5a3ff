import { say } from '@nebo/bus';
import { type KeyChanged } from '@nebo/contracts';
import { type Sql } from '@nebo/persistence';
import { says } from '../events.js';

/** Says that a key changed, in the transaction of the change: gateways that keep it forget it. */
export async function sayKeyChanged(
  tx: Sql,
  key: { id: string; account_id: string; hash: Uint8Array; state: string },
): Promise<void> {
  const data: KeyChanged = {
    key_id: key.id,
    hash: Buffer.from(key.hash).toString('base64url'),
    state: key.state as KeyChanged['state'],
  };
  await say(tx, says.keyChanged(data, { account: key.account_id }));
}
