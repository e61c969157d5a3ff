import type { ReadStream, WriteStream } from 'node:tty';

/** The outside world of one run, so that nothing else touches `process`. */
export interface Io {
  stdin: NodeJS.ReadStream | ReadStream;
  stdout: NodeJS.WriteStream | WriteStream;
  stderr: NodeJS.WriteStream | WriteStream;
  env: Readonly<Record<string, string | undefined>>;
  cwd: string;
}

/**
 * Whether a stream gets colour: `--no-color` and `NO_COLOR` say no, `FORCE_COLOR` says yes, then a terminal that is not
 * `dumb` does (no-color.org: an empty NO_COLOR counts as absent).
 */
export function wantsColor(io: Io, stream: { isTTY?: boolean }, flag: boolean): boolean {
  if (!flag || io.env['NO_COLOR']) return false;
  const force = io.env['FORCE_COLOR'];
  if (force !== undefined && force !== '') return force !== '0' && force !== 'false';
  return stream.isTTY === true && io.env['TERM'] !== 'dumb';
}

/* eslint-disable no-control-regex -- control characters are what these are about */
const escapes =
  /\u001b(?:\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\[[0-?]*[ -/]*[@-~]?|[PX^_][^\u001b]*(?:\u001b\\)?|.)?/g;
const controls = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f]/g;
const colour = /^\u001b\[[0-9;:]*m$/;
/* eslint-enable no-control-regex */

/**
 * Text of strangers (log lines, commit messages) made harmless for a terminal: colour stays when wanted, every other
 * escape and control character goes, since they can write to the clipboard or move the cursor over what stood before.
 */
export function forTerminal(text: string, color: boolean): string {
  const kept = text.replace(escapes, (found) => (color && colour.test(found) ? found : ''));
  // A progress bar rewrites its line with \r: the last state is the one that counts.
  const last = kept.replace(/\r+$/, '');
  return last.slice(last.lastIndexOf('\r') + 1).replace(controls, '');
}
