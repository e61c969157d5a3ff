import { posix } from 'node:path';
import { BuildFailure, type SourceTree } from '../tree.js';

/** What a package.json says, as far as builds care. */
export interface PackageJson {
  name: string | null;
  scripts: Record<string, string>;
  /** Of all kinds: name → range. */
  dependencies: Record<string, string>;
  main: string | null;
  workspaces: boolean;
  packageManager: string | null;
  nodeEngine: string | null;
}

const strings = (value: unknown): Record<string, string> =>
  typeof value === 'object' && value !== null
    ? Object.fromEntries(
        Object.entries(value).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
      )
    : {};

/** A JSON object of the tree, null when there is no such file. @throws BuildFailure when it is something else */
export async function readObject(tree: SourceTree, path: string): Promise<Record<string, unknown> | null> {
  const text = await tree.read(path);
  if (text === null) return null;
  try {
    const json: unknown = JSON.parse(text);
    if (typeof json !== 'object' || json === null || Array.isArray(json)) throw new Error('no object');
    return json as Record<string, unknown>;
  } catch {
    throw new BuildFailure(`${path} is not valid JSON.`);
  }
}

/** @throws BuildFailure when the file is no JSON object */
export async function readPackage(tree: SourceTree, dir: string): Promise<PackageJson | null> {
  const json = await readObject(tree, posix.join(dir, 'package.json'));
  if (json === null) return null;
  const text = (key: string) => (typeof json[key] === 'string' ? json[key] : null);
  return {
    name: text('name'),
    scripts: strings(json['scripts']),
    dependencies: {
      ...strings(json['devDependencies']),
      ...strings(json['optionalDependencies']),
      ...strings(json['dependencies']),
    },
    main: text('main'),
    workspaces: json['workspaces'] !== undefined,
    packageManager: text('packageManager'),
    nodeEngine: strings(json['engines'])['node'] ?? null,
  };
}
