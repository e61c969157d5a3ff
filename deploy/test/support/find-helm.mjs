import { accessSync, constants } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';

/** Go's folder of this user. */
export const goFolder = () => process.env.GOPATH || join(homedir(), 'go');

/** Path of helm on PATH, in `~/go/bin` or `/usr/local/bin`; null when there is none. */
export function findHelm() {
  const folders = [...(process.env.PATH ?? '').split(delimiter), join(goFolder(), 'bin'), '/usr/local/bin'];
  for (const folder of folders.filter(Boolean)) {
    try {
      accessSync(join(folder, 'helm'), constants.X_OK);
      return join(folder, 'helm');
    } catch {
      // The next one.
    }
  }
  return null;
}
