/** The command of the `web` line of a Procfile, or null. */
export function webCommand(text: string | null): string | null {
  for (const line of text?.split(/\r?\n/) ?? []) {
    const found = /^\s*web\s*:\s*(.*\S)/.exec(line);
    if (found) return found[1]!;
  }
  return null;
}
