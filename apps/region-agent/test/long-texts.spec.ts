import { createSafeClient } from '@nebo/safe-net';
import { readModules } from '../src/builds/git-modules.js';
import { meets } from '../src/builds/node-version.js';
import { RegistryAccess } from '../src/images/registry-access.js';
import { PlanGround } from './plan-kit.js';

/** What the agent reads of a source may have 2 MB, and while it reads nothing else of the region goes on. */
const size = 2_000_000;

describe('files that are written to take long to read', () => {
  let ground: PlanGround;
  let began: number;

  beforeEach(async () => {
    ground = await PlanGround.make();
    began = performance.now();
  });
  afterEach(async () => {
    expect(performance.now() - began).toBeLessThan(2_000);
    await ground.end();
  });

  it.each(['\n', '\r', ' ', '\t\n', 'require', '\n\u00a0'])('a go.mod of %j', async (part) => {
    const mod = `module x\n${part.repeat(size / part.length)}`;
    const found = await ground.plan({ 'go.mod': mod, 'main.go': 'package main\n' });
    expect(found).toMatchObject({ stack: 'go', install: null });
  });

  it.each(['use(', 'use (', 'use ', '(', '\n'])('a go.work of %j', async (part) => {
    const files = { 'go.work': part.repeat(size / part.length), 'cmd/a/main.go': 'package main\n' };
    expect(await ground.plan(files)).toMatchObject({ stack: 'go' });
  });

  it.each(['<', '> ', ' ', 'x', '1.', '|'])('a Node version of %j', (part) => {
    expect(meets('24.1.0', part.repeat(size / part.length))).toBe(null);
  });

  it.each([' ', '"', '" ', '[ ', 'url', '=', '\t'])('a .gitmodules of %j', (part) => {
    const long = part.repeat(250_000 / part.length);
    for (const text of [
      `[submodule "a"]\nurl = x${long}y\npath = b`,
      `[submodule "${long}"]x\nurl = ${long}`,
    ])
      expect(readModules(text).length).toBeLessThan(2);
  });

  it("a registry's challenge without an end", async () => {
    const parts = { client: createSafeClient(), signal: AbortSignal.timeout(5_000), login: null };
    // As many as a head may have.
    for (let tries = 0; tries < 10; tries += 1)
      await expect(
        new RegistryAccess('registry.example', 'a/b', parts).meet(`Bearer ${'a'.repeat(32_000)}`, 'it'),
      ).rejects.toThrow(/names no place that gives tokens/);
  });
});
