import { tmpdir } from 'node:os';
import { type Cgroups } from '../src/drivers/local/cgroups.js';
import { defaultBuildLimits as limits } from '../src/drivers/create.js';
import { EngineClient } from '../src/engine/client.js';
import { engineInfo } from '../src/engine/engine-info.js';
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
    const group = await groups.open(await engineInfo(new EngineClient(double.socket)), 'run', limits);
    expect(group?.path ?? null).toBe(made ? '/nebo-abc123-engine/run' : null);
    expect(names).toEqual(made ? ['run'] : []);
  });

  it('where no groups can be made there is none', async () => {
    const info = { takesGroups: true, root: null, layers: [] };
    const groups = new StepGroups(null, 'x', tmpdir());
    expect(await groups.open(info, 'x', limits)).toBeNull();
    expect(await groups.bound(process.pid, 'x', 5)).toBe(false);
  });

  it('what the engine says of its store is where layers are named relative to', async () => {
    double.info = { CgroupDriver: 'cgroupfs', DockerRootDir: '/var/lib/x', Driver: 'overlay2' };
    const client = new EngineClient(double.socket);
    expect(await engineInfo(client)).toEqual({
      ...{ takesGroups: true, root: '/var/lib/x', layers: ['/var/lib/x/overlay2'] },
    });
    double.info = { DockerRootDir: 'C:\\x', Driver: '../..' };
    expect(await engineInfo(client)).toEqual({ takesGroups: false, root: null, layers: [] });
  });
});
