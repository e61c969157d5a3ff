import { posix } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { type Toolchain } from '../system/toolchain.js';
import { type SourceTree } from './tree.js';

/** What a finished build is packed from. */
export type BuildOutput =
  | { kind: 'static'; dir: string }
  /** `dir` is packed whole; the command starts in it. */
  | { kind: 'server'; dir: string; start: string };

/** A folder of a tool, outside of the tree, that later builds of the app go on with. */
export interface ToolCache {
  /** Its name in the cache: lower-case letters and hyphens. */
  name: string;
  /** Variables that lead the tool there. */
  variables: readonly string[];
  /** `install`: not wanted when what is installed is there already. */
  wanted: 'always' | 'install';
}

/** What later builds of the app need not make again. */
export interface PlanCaches {
  tools: readonly ToolCache[];
  /**
   * Folders of the tree that the build goes on with; they are not part of the artifact. `inInstalled`: it lies in what is
   * installed, and is of use only where that is taken whole.
   */
  tree: readonly { name: string; path: string; inInstalled?: true }[];
  /** What `install` makes: taken whole, and the step left out, while its key is the same. Null: never sound. */
  installed: { key: string; folders(): Promise<string[]> } | null;
}

export const noCaches: PlanCaches = { tools: [], tree: [], installed: null };

/** What to run to make an app from its source. Paths are relative to the tree. */
export interface BuildPlan {
  /** What was found, for people: `next`, `vite`, `go`. */
  stack: string;
  appDir: string;
  /** Where dependencies are installed: the app's folder, or the root of the workspace that it belongs to. */
  installDir: string;
  install: string | null;
  build: string | null;
  /** Puts what was built into place, in the app's folder; also after the user's own build command. */
  after: string | null;
  /** Whether its server runs on Node, whose version is then said. */
  node: boolean;
  /** What users ought to know, for the log. */
  notes: readonly string[];
  /** For install and build; the user's own win. */
  env: Readonly<Record<string, string>>;
  caches: PlanCaches;
  /** A container engine builds the app's folder by its Dockerfile; all commands are of no use then. */
  container?: true;
  /**
   * Says what to pack, after the build ran.
   * @throws BuildFailure when there is nothing to serve or start
   */
  output(): Promise<BuildOutput>;
}

/** What stacks look at. */
export interface Look {
  tree: SourceTree;
  spec: BuildSpec;
  appDir: string;
  tools: Toolchain;
  /** Whether a container engine answers that builds Dockerfiles. */
  engine(): Promise<boolean>;
  /** The explicit start command, else the `web` line of a Procfile. */
  start: string | null;
  /** The `framework` setting names this stack: it is built so, or fails. */
  asked: boolean;
}

/** One kind of source: a folder below `stacks`, and a line in their list. */
export interface Stack {
  /** Values of the `framework` setting that mean it. */
  readonly names: readonly string[];
  /**
   * Null: the source is not of this kind.
   * @throws BuildFailure when it is, but cannot be built here, or when it was asked for and is not
   */
  detect(look: Look): Promise<BuildPlan | null>;
}

/** A path in the app's folder. */
export const at = ({ appDir }: Pick<Look, 'appDir'>, ...names: string[]): string =>
  posix.join(appDir, ...names);

/** A word for a shell. */
export const quoted = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`;

/** Folder of the artifact with Python's packages: both drivers put it into a replica's PYTHONPATH and PATH. */
export const pythonPackages = '.nebo/python';
