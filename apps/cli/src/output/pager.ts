import { type Io } from '../core/io.js';

/**
 * Shows a long text in the pager (`NEBO_PAGER`, then `PAGER`, then less). Only on a terminal and only when the text does
 * not fit. False when it was not shown.
 */
export async function page(text: string, io: Io): Promise<boolean> {
  if (!io.stdout.isTTY || !io.stdin.isTTY || text.split('\n').length <= (io.stdout.rows || 24)) return false;
  const asked = io.env['NEBO_PAGER'] ?? io.env['PAGER'] ?? 'less';
  // Words, not a shell line: a pager with quotes in its arguments belongs into a script of its own.
  const [command, ...args] = asked.split(/\s+/).filter((word) => word !== '');
  if (!command || command === 'cat') return false;
  const { spawnSync } = await import('node:child_process');
  const shown = spawnSync(command, args, {
    input: text,
    stdio: ['pipe', 'inherit', 'inherit'],
    env: { LESS: 'FRX', ...io.env } as NodeJS.ProcessEnv,
  });
  return shown.error === undefined;
}
