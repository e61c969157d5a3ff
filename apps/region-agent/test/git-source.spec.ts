import { Readable } from 'node:stream';
import { checkArchive } from '@nebo/archive';
import { type BlobRef, type GitSource } from '@nebo/contracts';
import { type EgressProxy, parseAllowList, startEgressProxy } from '@nebo/safe-net';
import { GitHostPart } from '@nebo/test-kit';
import { egressOf } from '../src/index.js';
import { localMissing, stage, type Stage } from './agent-kit.js';
import { buildOf } from './sources.js';

const missing = await localMissing();

for (const driver of ['simulated', 'local'] as const) {
  const skip = driver === 'local' && missing !== null;
  const name = skip ? `git sources, ${driver} (SKIPPED: ${missing})` : `git sources, ${driver}`;
  (skip ? describe.skip : describe)(name, () => {
    let host: GitHostPart;
    let proxy: EgressProxy;
    let on: Stage;
    let first: string;
    const before = process.env['NEBO_SAFE_NET_ALLOW'];
    const source = (commit: string, more: Partial<GitSource> = {}): GitSource => ({
      clone_url: `${host.url}/ann/site.git`,
      commit,
      branch: 'main',
      username: 'ann',
      password: host.token,
      ...more,
    });
    const build = async (id: string, git: GitSource, more: object = {}) => {
      const { kind, spec } = await buildOf(on.plane, id, {}, { git, ...more });
      on.plane.want(id, 1, { kind, spec: { ...spec, source: null } });
    };
    const reason = async (id: string, git: GitSource) => {
      await build(id, git);
      return (await on.plane.see(id, 'error', 40_000)).reason;
    };
    const sourceOf = (id: string) => on.plane.latest(id)!.facts['source'] as BlobRef;

    beforeAll(async () => {
      host = await GitHostPart.start();
      process.env['NEBO_SAFE_NET_ALLOW'] = host.address;
      const { port } = new URL(host.url);
      proxy = await startEgressProxy({ allow: parseAllowList(`${host.address},localhost:${port}`) });
      on = await stage(driver, { wallMs: 60_000 }, egressOf(proxy));
      await host.createRepository('ann/site');
      first = await host.push('ann/site', {
        files: { 'index.html': '<h1>one</h1>', 'apps/web/index.html': 'web', "it's here": 'x' },
      });
    }, 30_000);
    afterAll(async () => {
      await on?.end();
      await proxy?.stop();
      await host?.stop();
      if (before === undefined) delete process.env['NEBO_SAFE_NET_ALLOW'];
      else process.env['NEBO_SAFE_NET_ALLOW'] = before;
    });

    it('a commit becomes an archive of its files, stored as the source; the same commit gives the same bytes', async () => {
      await build('one', source(first));
      const seen = await on.plane.see('one', 'success', 40_000);
      expect(seen.facts).toMatchObject({ artifact_kind: 'static', stack: 'static' });
      const blob = sourceOf('one');
      const summary = await checkArchive(Readable.from([on.plane.blobs.get(blob.sha256)!]));
      expect(summary.files.topLevel.sort()).toEqual(['apps', 'index.html', "it's here"]);
      const log = on.plane.lines('build-one').join('\n');
      expect(log).toContain(`ann/site.git at ${first.slice(0, 12)} of main`);
      expect(log).toContain(`source ${blob.sha256.slice(0, 12)}`);
      await build('again', source(first));
      await on.plane.see('again', 'success', 40_000);
      expect(sourceOf('again')).toEqual(blob);
    }, 60_000);

    it('the commit that was asked for is built, not what the branch is by now; a root directory counts', async () => {
      await host.push('ann/site', { files: { 'index.html': '<h1>two</h1>' } });
      await build('older', source(first), { root_directory: 'apps/web' });
      await on.plane.see('older', 'success', 40_000);
      expect(sourceOf('older')).toEqual(sourceOf('one'));
    }, 60_000);

    it('a build that fails after the fetch reports what it fetched', async () => {
      await build('broken', source(first), { build_command: 'exit 3' });
      const { facts } = await on.plane.see('broken', 'error', 40_000);
      expect(facts['source']).toEqual(sourceOf('one'));
    }, 60_000);

    it('says what is wrong: the token, the commit, the repository, the address', async () => {
      expect(await reason('token', source(first, { password: 'spent' }))).toMatch(/^fetch: .*reconnect it/);
      expect(await reason('public', source(first, { username: null, password: null }))).toMatch(/not public/);
      expect(await reason('commit', source('a'.repeat(40)))).toMatch(/commit aaaaaaaaaaaa is not in the/);
      const absent = source(first, { clone_url: `${host.url}/ann/absent.git` });
      expect(await reason('absent', absent)).toMatch(/is not there any more/);
      const inside = source(first, { clone_url: 'https://127.0.0.1/ann/site.git' });
      expect(await reason('inside', inside)).toMatch(/cannot be fetched: .*not a public address/);
      const nowhere = source(first, { clone_url: 'https://git.example.org/ann/site.git' });
      expect(await reason('nowhere', nowhere)).toMatch(/could not be reached/);
      const shell = source(first, { clone_url: "https://example.org/a'$(touch x)'.git" });
      expect(await reason('shell', shell)).toMatch(/^fetch: /);
      for (const id of ['token', 'commit', 'absent'])
        expect(on.plane.lines(`build-${id}`).join('\n')).not.toContain(host.token);
    }, 120_000);

    it('submodules come along: of the same host with its credential, of others without; what cannot be had is said', async () => {
      await host.createRepository('ann/lib');
      await host.createRepository('ann/deep', { isPrivate: false });
      await host.createRepository('ann/whole');
      const deep = await host.push('ann/deep', { files: { 'deep.txt': 'deep' } });
      const lib = await host.push('ann/lib', {
        files: {
          'lib.txt': 'lib',
          '.gitmodules': `[submodule "d"]\n\tpath = in/deep\n\turl = ../deep.git\n`,
        },
        links: { 'in/deep': deep },
      });
      const other = host.url.replace('127.0.0.1', 'localhost');
      const modules = [
        ['libs/lib', `${host.url}/ann/lib.git`, lib],
        ['libs/ssh', 'git@127.0.0.1:ann/lib.git', lib],
        ['libs/gone', `${host.url}/ann/absent.git`, lib],
        ['libs/old', `${host.url}/ann/lib.git`, 'b'.repeat(40)],
        ['libs/inside', 'https://169.254.169.254/x.git', lib],
        ['libs/far', 'git@git.example.org:x/y.git', lib],
        ['libs/foreign', `${other}/ann/lib.git`, lib],
      ] as const;
      const text = modules
        .map(([path, url]) => `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`)
        .join('');
      const links = Object.fromEntries(modules.map(([path, , sha]) => [path, sha]));
      const files = {
        'index.html': 'x',
        '.gitmodules': text,
        '.gitattributes': '*.psd filter=lfs diff=lfs merge=lfs -text\n',
        'art/a.psd': `version https://git-lfs.github.com/spec/v1\noid sha256:${'a'.repeat(64)}\nsize 5\n`,
        'art/b.psd': 'a whole picture',
      };
      const commit = await host.push('ann/whole', { files, links });
      // `localhost` is the same server under another name: it gets no credential of this one.
      const before = process.env['NEBO_SAFE_NET_ALLOW'];
      process.env['NEBO_SAFE_NET_ALLOW'] = `${host.address},${new URL(other).host}`;
      await build('modules', source(commit, { clone_url: `${host.url}/ann/whole.git` }));
      await on.plane.see('modules', 'success', 60_000);
      process.env['NEBO_SAFE_NET_ALLOW'] = before;
      const log = on.plane.lines('build-modules').join('\n');
      const summary = await checkArchive(Readable.from([on.plane.blobs.get(sourceOf('modules').sha256)!]));
      const text0 = JSON.stringify(summary);
      expect(log).toContain('submodule libs/lib: ');
      expect(log).toContain('submodule libs/lib/in/deep: ');
      expect(log).toContain('submodule libs/ssh/in/deep: ');
      expect(log).not.toMatch(/warning: the submodule libs\/(lib|ssh)/);
      expect(log).toMatch(/libs\/gone is left out, there is no such repository/);
      expect(log).toMatch(/libs\/old is left out, its commit is not there any more/);
      expect(log).toMatch(/libs\/inside is left out, .*public/);
      expect(log).toMatch(/libs\/far is left out, it is reached by ssh/);
      expect(log).toMatch(/libs\/foreign is left out, it is not public/);
      expect(log).toMatch(/Git LFS files are not fetched, .*: art\/a\.psd$/m);
      expect(log).not.toContain('b.psd');
      expect(log).not.toContain(host.token);
      expect(text0).not.toContain('.git/');
    }, 90_000);

    it('hooks, filters, submodules and links of a hostile repository do nothing', async () => {
      await host.createRepository('ann/evil');
      const commit = await host.push('ann/evil', {
        files: {
          'index.html': 'x',
          '.gitattributes': '* filter=evil\n* -export-ignore\nhidden export-ignore\n',
          '.gitmodules': `[submodule "m"]\n\tpath = m\n\turl = file:///etc\n`,
          '.githooks/post-checkout': '#!/bin/sh\ntouch evil-ran\n',
          hidden: 'still here',
        },
      });
      await build('evil', source(commit, { clone_url: `${host.url}/ann/evil.git` }));
      await on.plane.see('evil', 'success', 40_000);
      const summary = await checkArchive(Readable.from([on.plane.blobs.get(sourceOf('evil').sha256)!]));
      expect(summary.files.topLevel).toEqual(expect.arrayContaining(['hidden', '.gitmodules']));
      expect(summary.files.topLevel).not.toContain('.git');
      expect(summary.files.topLevel).not.toContain('evil-ran');
    }, 60_000);
  });
}
