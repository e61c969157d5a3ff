import { tmpdir } from 'node:os';
import { type Cgroups } from '../src/drivers/local/cgroups.js';
import { defaultBuildLimits } from '../src/drivers/create.js';
import { EngineClient } from '../src/engine/client.js';
import { type Engine } from '../src/engine/engines.js';
import { StepGroups } from '../src/engine/step-groups.js';
import { EngineDouble } from './engine-double.js';

describe('groups of an engine’s steps', () => {
  let double: EngineDouble;
  beforeAll(async () => {
    double = await EngineDouble.make();
    await double.up();
  });
  afterAll(() => double.end());

  it.each([
    ['an engine of root that makes folders', { CgroupDriver: 'cgroupfs' }, true],
    ['one with other options', { CgroupDriver: 'cgroupfs', SecurityOptions: ['name=seccomp'] }, true],
    ['one that asks systemd', { CgroupDriver: 'systemd' }, false],
    ['one without root', { CgroupDriver: 'cgroupfs', SecurityOptions: ['name=rootless'] }, false],
    ['one that does not say', {}, false],
  ])('%s', async (_what, info, made) => {
    double.info = info;
    const names: string[] = [];
    const cgroups = { create: async (name: string) => void names.push(name) } as unknown as Cgroups;
    const groups = new StepGroups(cgroups, 'nebo-abc123-engine', tmpdir());
    for (const kind of ['docker', 'podman'] as const) {
      const engine: Engine = { client: new EngineClient(double.socket), kind, words: kind };
      const path = await groups.open(engine, kind, defaultBuildLimits);
      expect(path).toEqual(made ? { path: `/nebo-abc123-engine/${kind}` } : null);
    }
    expect(names).toEqual(made ? ['docker', 'podman'] : []);
  });

  it('where no groups can be made, no engine is asked', async () => {
    double.info = null;
    const engine: Engine = { client: new EngineClient(double.socket), kind: 'docker', words: '' };
    expect(await new StepGroups(null, 'x', tmpdir()).open(engine, 'x', defaultBuildLimits)).toBeNull();
  });
});
