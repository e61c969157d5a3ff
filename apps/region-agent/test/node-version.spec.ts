import { askedNode, meets, nodeWords } from '../src/builds/node-version.js';
import { SourceTree } from '../src/builds/tree.js';
import { findToolchain } from '../src/system/toolchain.js';
import { pkg, PlanGround } from './plan-kit.js';

let ground: PlanGround;
beforeEach(async () => {
  ground = await PlanGround.make();
});
afterEach(() => ground.end());

describe('which Node', () => {
  it.each([
    ['24', true],
    ['v24.x', true],
    ['24.21', true],
    ['24.20.0', false],
    ['^24.1.0', true],
    ['~24.21.0', true],
    ['~24.20.0', false],
    ['>=18', true],
    ['>= 18 <24', false],
    ['18 - 24', true],
    ['20 || 22', false],
    ['20 || >=22.1', true],
    ['*', true],
    ['lts/*', null],
    ['latest please', null],
  ])('24.21.0 for %s: %s', (range, fits) => expect(meets('24.21.0', range)).toBe(fits));

  it('says what runs and who asked for what', async () => {
    expect(nodeWords(null, '24.1.0')).toBe('Node 24.1.0');
    expect(nodeWords({ version: '24', by: '.nvmrc' }, '24.1.0')).toBe('Node 24.1.0, as .nvmrc asks (24)');
    expect(nodeWords({ version: '18', by: 'nodejs_version' }, '24.1.0')).toBe(
      'note: nodejs_version asks for Node 18, which this region does not have: it builds and runs with Node 24.1.0',
    );
    await ground.plan({
      'package.json': pkg({ engines: { node: '>=20' } }),
      '.nvmrc': '18\n',
      'index.html': '',
    });
    const look = { tree: new SourceTree(ground.root), appDir: '.' };
    expect(await askedNode(look, { nodejs_version: ' 22 ' })).toEqual({
      version: '22',
      by: 'nodejs_version',
    });
    expect(await askedNode(look, { nodejs_version: null })).toMatchObject({ version: '>=20' });
  });

  it('a host without anything has Node only', () => {
    const bare = findToolchain({ PATH: '' });
    expect(bare.node).toBe(findToolchain().node);
    for (const tool of [bare.go, bare.python]) if (tool) expect(tool.version).toMatch(/^\d+\.\d+/);
  });
});
