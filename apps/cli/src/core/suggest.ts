import { distance } from 'fastest-levenshtein';

/**
 * The names nearest to a word, best first: within a third of their length, or beginning alike.
 * @param limit at most so many
 */
export function nearest(word: string, names: Iterable<string>, limit = 3): string[] {
  const wanted = word.toLowerCase();
  const scored: { name: string; score: number }[] = [];
  for (const name of new Set(names)) {
    const lower = name.toLowerCase();
    const far = distance(wanted, lower);
    const close = far <= Math.max(1, Math.ceil(Math.max(wanted.length, lower.length) / 3));
    const alike =
      wanted.length >= 2 && (lower.startsWith(wanted) || wanted.startsWith(lower) || lower.includes(wanted));
    if (close || alike) scored.push({ name, score: alike ? far / 4 : far });
  }
  scored.sort((a, b) => a.score - b.score || (a.name < b.name ? -1 : 1));
  return scored.slice(0, limit).map(({ name }) => name);
}

/** "Nearest: a, b" or null when nothing is near. */
export function nearestText(word: string, names: Iterable<string>, limit = 3): string | null {
  const found = nearest(word, names, limit);
  return found.length === 0 ? null : `Nearest: ${found.join(', ')}`;
}
