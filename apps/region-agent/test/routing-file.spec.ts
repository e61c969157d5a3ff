import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readRouting } from '../src/builds/routing-file.js';
import { SourceTree } from '../src/builds/tree.js';

describe('the routing file of a source', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'nebo-rules-'));
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  const read = async (files: Record<string, string>, appDir = '.') => {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(join(root, path, '..'), { recursive: true });
      await writeFile(join(root, path), text);
    }
    const lines: string[] = [];
    const routing = await readRouting(new SourceTree(root), appDir, (line) => lines.push(line)).catch(
      (error: Error) => error.message,
    );
    return { routing, lines };
  };

  it('is none, or the one in the app’s own folder', async () => {
    expect(await read({ 'index.html': '' })).toEqual({ routing: null, lines: [] });
    const rules = '{"redirects":[{"source":"/a","destination":"/b"}]}';
    expect(await read({ 'vercel.json': '{', 'web/vercel.json': rules }, 'web')).toMatchObject({
      routing: { format: 1, redirects: [{ line: 1, status: 308 }] },
      lines: ['vercel.json: 1 redirects, 0 header rules, 0 rewrites, 0 CORS rules'],
    });
  });

  it('is nebo.json where both are, and the other is named', async () => {
    const { routing, lines } = await read({ 'nebo.json': '{"cors":[]}', 'vercel.json': '{"redirects":1}' });
    expect(routing).toMatchObject({ cors: [] });
    expect(lines).toContain('warning: nebo.json rules, vercel.json is not looked at');
  });

  it('fails the build with file and line of each fault, and warns of what has no effect', async () => {
    const { routing, lines } = await read({
      'nebo.json': '{\n"headers": [{"source": "a", "headers": []}],\n"rewrites": 5,\n"buildCommand": "x"\n}',
    });
    expect(routing).toBe('nebo.json:2: "a" must begin with / (and 1 more, see the log)');
    expect(lines).toEqual([
      'error: nebo.json:2: "a" must begin with /',
      'error: nebo.json:3: "rewrites" must be a list',
    ]);
    expect((await read({ 'nebo.json': '{\n"buildCommand": "x"\n}' })).lines[0]).toBe(
      'warning: nebo.json:2: "buildCommand" is not about routing and has no effect here',
    );
  });

  it('fails the build when it is too large to go along with every route', async () => {
    const value = 'x'.repeat(4_000);
    const headers = Array.from({ length: 200 }, (_, index) => ({
      source: `/${index}`,
      headers: [{ key: 'X-Long', value }],
    }));
    expect((await read({ 'vercel.json': JSON.stringify({ headers }) })).routing).toMatch(
      /more than 524288 bytes/,
    );
  });
});
