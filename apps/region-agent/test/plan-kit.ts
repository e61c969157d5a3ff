import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { detect } from '../src/builds/detect.js';
import { SourceTree } from '../src/builds/tree.js';
import { type Toolchain } from '../src/system/toolchain.js';

const nothing = {
  framework: null,
  nodejs_version: null,
  root_directory: null,
  install_command: null,
  build_command: null,
  start_command: null,
  output_directory: null,
  app_type: 'frontend',
  env: [],
};
const tools: Toolchain = {
  node: process.execPath,
  npm: '/npm',
  go: { root: '/go', version: '1.24.1' },
  python: { executable: '/usr/bin/python3', prefix: '/usr', version: '3.11.2', pip: true },
  authorities: null,
};
export const pkg = (json: object): string => JSON.stringify(json);

/** A source in a folder, and what detection says of it. */
export class PlanGround {
  private constructor(readonly root: string) {}

  static async make(): Promise<PlanGround> {
    return new PlanGround(await mkdtemp(join(tmpdir(), 'nebo-detect-')));
  }

  end(): Promise<void> {
    return rm(this.root, { recursive: true, force: true });
  }

  /** @param files by path; what a build would leave may be among them */
  async plan(
    files: Record<string, string>,
    more: Partial<BuildSpec> = {},
    changed: Partial<Toolchain> = {},
  ): Promise<Record<string, unknown>> {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(join(this.root, path, '..'), { recursive: true });
      await writeFile(join(this.root, path), text);
    }
    const spec = { ...nothing, ...more } as BuildSpec;
    const found = await detect(new SourceTree(this.root), spec, { ...tools, ...changed });
    const { install, build, installDir, stack, notes, caches } = found;
    return {
      ...{ stack, install, build, installDir },
      notes: notes.join('\n'),
      reused: caches.installed?.key ?? null,
      kept: [...caches.tools, ...caches.tree].map(({ name }) => name),
      out: await found.output().catch((error: Error) => error.message),
    };
  }
}
