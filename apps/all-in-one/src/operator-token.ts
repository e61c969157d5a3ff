import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Config } from '@nebo/service-kit/config';
import { MasterKey } from '@nebo/service-kit/secrets';

/** The bearer of the operator's door: whoever can read the master key. @throws RangeError where there is no installation */
export function operatorTokenOf(config: Config): string {
  const home = resolve(config.text('NEBO_HOME', '.nebo'));
  const keyFile = resolve(config.text('NEBO_MASTER_KEY_FILE', `${home}/master.key`));
  if (!existsSync(keyFile))
    throw new RangeError(`${keyFile} is not there: start Nebo first (npm start), or set NEBO_HOME`);
  return `nebo_operator_${MasterKey.fromFile(keyFile).derive('operator').toString('base64url')}`;
}
