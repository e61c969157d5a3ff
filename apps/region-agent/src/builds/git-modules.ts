/** A line of a `.gitmodules`, as far as it is wanted. */
export interface Submodule {
  /** From the repository's top on. */
  path: string;
  url: string;
}

/** Submodules of one repository that are read at most. */
const mostModules = 100;

/** Whether a path stays in the tree and touches nothing of git's. */
const isPlainPath = (path: string): boolean =>
  path.length <= 1_024 &&
  !/^[-/]|\\/.test(path) &&
  [...path].every((char) => char >= ' ') &&
  path.split('/').every((part) => part !== '' && part !== '.' && part !== '..' && !/^\.git$/i.test(part));

/** The submodules that a `.gitmodules` names; what is odd in it is left out. */
export function readModules(text: string): Submodule[] {
  const found: Partial<Submodule>[] = [];
  for (const line of text.split(/\r?\n/)) {
    if (/^\s*\[\s*submodule\s+".*"\s*\]\s*$/.test(line)) found.push({});
    else if (/^\s*\[/.test(line)) found.push({});
    const match = /^\s*(path|url)\s*=(.*)$/.exec(line);
    const last = found.at(-1);
    if (match && last) last[match[1] as 'path' | 'url'] = match[2]!.trim().replace(/^"(.*)"$/, '$1');
  }
  return found
    .filter(
      (one): one is Submodule => one.path !== undefined && one.url !== undefined && isPlainPath(one.path),
    )
    .slice(0, mostModules);
}

/**
 * Where a submodule is fetched. `./x` and `../x` are read from the repository that names it; an ssh address of the same host
 * is taken as its https one, since the connection's credential opens that.
 * @param parent address of the repository that names it
 * @returns the address, or why there is none
 */
export function moduleUrl(parent: string, url: string): { url: string } | { why: string } {
  const base = new URL(parent);
  if (/^\.{1,2}\//.test(url)) return { url: new URL(url, `${parent.replace(/\/+$/, '')}/`).href };
  if (/^https?:\/\//i.test(url)) {
    if (!URL.canParse(url)) return { why: 'its address cannot be read' };
    const { username, password } = new URL(url);
    // Somebody's credential in a public file: it is not used, and not shown.
    return username === '' && password === '' ? { url } : { why: 'its address holds a credential' };
  }
  const ssh =
    /^(?:ssh:\/\/)(?:[^@/]+@)?([^/:]+)(?::\d+)?\/(.+)$/i.exec(url) ??
    /^(?:[^@/]+@)?([^/:]+):(?!\/\/)(.+)$/.exec(url);
  if (ssh === null) return { why: 'its address is none that is fetched' };
  if (ssh[1]!.toLowerCase() !== base.hostname)
    return { why: 'it is reached by ssh; give it an https address' };
  return { url: `${base.origin}/${ssh[2]!.replace(/^\/+/, '')}` };
}

/** What git's words mean for a submodule. */
export function moduleReason(output: string): string {
  if (/authentication failed|could not read (username|password)|error: 40[13]/i.test(output))
    return 'it is not public, and the connection does not open it';
  if (/repository .*not found|error: 404/i.test(output)) return 'there is no such repository';
  if (/not our ref|unadvertised object|reference is not a tree|unable to read tree/i.test(output))
    return 'its commit is not there any more';
  return 'git could not fetch it';
}
