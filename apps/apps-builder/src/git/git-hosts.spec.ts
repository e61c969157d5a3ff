import { createSafeClient, parseAllowList } from '@nebo/safe-net';
import { type GitDialect, gitDialects, GitHostPart } from '@nebo/test-kit';
import { GitApi } from './git-api.js';
import { type GitAddresses, type GitHost, GitHostError } from './git-host.js';
import { gitHosts } from './host-list.js';

/** One suite for every kind of git host, over real repositories and real HTTP. */
for (const dialect of gitDialects) {
  describe(dialect, () => {
    let part: GitHostPart;
    let host: GitHost;
    let addresses: GitAddresses;
    const api = (token: string | null = part.token) =>
      new GitApi(
        createSafeClient({ allow: parseAllowList(part.address), httpsOnly: true }),
        addresses.api,
        (text) => host.headers(text),
        token,
      );
    const failure = (work: Promise<unknown>) =>
      work.then(
        () => 'none',
        (error: unknown) => (error as GitHostError).failure,
      );

    beforeAll(async () => {
      part = await GitHostPart.start({ dialect });
      host = gitHosts.find((one) => one.provider === dialect)!;
      // GitVerse is hosted only: its suite goes past the address that it would choose.
      addresses = host.addresses(part.url) ?? { web: part.url, api: part.api };
      expect(addresses).toEqual({ web: part.url, api: part.api });
      await part.createRepository('ann/site');
    });
    afterAll(() => part?.stop());

    it('says whom a token belongs to; another one is unauthorized, and so is a spent one', async () => {
      expect(await host.account(api())).toEqual({ login: 'ann' });
      expect(await failure(host.account(api('wrong')))).toBe('unauthorized');
    });

    it('lists repositories page by page', async () => {
      for (let count = 1; count <= host.pageSize; count += 1)
        if (dialect === 'gitea')
          await part.createRepository(`ann/more-${count}`, { isPrivate: count % 2 === 0 });
      const first = await host.repositories(api(), 1);
      expect(first.repositories[0]).toEqual({
        id: expect.any(String),
        full_name: 'ann/site',
        default_branch: 'main',
        private: true,
      });
      if (dialect === 'github') expect(first.total).toBeNull();
      else expect(first.total).toBeGreaterThanOrEqual(first.repositories.length);
      if (dialect === 'gitea') {
        expect([first.repositories.length, first.total]).toEqual([50, 51]);
        expect((await host.repositories(api(), 2)).repositories).toHaveLength(1);
      }
    }, 60_000);

    it('names the head of a branch and a commit, with message and author; what is missing is not_found', async () => {
      const sha = await part.push('ann/site', { files: { 'index.html': 'x' }, message: 'First\n\nmore' });
      const commit = { sha, message: 'First\n\nmore', author: 'Ann Author' };
      expect(await host.head(api(), 'ann/site', 'main')).toEqual(commit);
      expect(await host.commit(api(), 'ann/site', sha)).toEqual(commit);
      const slashed = await part.push('ann/site', { branch: 'feature/a', files: { a: '1' } });
      expect((await host.head(api(), 'ann/site', 'feature/a')).sha).toBe(slashed);
      await host.check(api(), 'ann/site');
      for (const work of [
        () => host.head(api(), 'ann/site', 'absent'),
        () => host.head(api(), 'ann/absent', 'main'),
        () => host.commit(api(), 'ann/site', '0123456789012345678901234567890123456789'),
        () => host.check(api(), 'ann/absent'),
      ])
        expect(await failure(work())).toBe('not_found');
    });

    it('makes a webhook once, renews it, and removes it also when it is gone', async () => {
      const hook = { url: 'http://nebo.example/hooks/git/1', secret: 'one' };
      const id = await host.ensureHook(api(), 'ann/site', hook);
      expect(await host.ensureHook(api(), 'ann/site', { ...hook, secret: 'two' })).toBe(id);
      expect(part.repository('ann/site').hooks).toEqual([{ id, url: hook.url, secret: 'two', active: true }]);
      await host.removeHook(api(), 'ann/site', id);
      await host.removeHook(api(), 'ann/site', id);
      expect(part.repository('ann/site').hooks).toEqual([]);
      part.forbidden.add('hooks');
      expect(await failure(host.ensureHook(api(), 'ann/site', hook))).toBe('forbidden');
      part.forbidden.clear();
    });

    it('sets the status of a commit, where the host has such', async () => {
      const { sha } = await host.head(api(), 'ann/site', 'main');
      for (const state of ['pending', 'success', 'failure'] as const) {
        const description = 'd'.repeat(300);
        await host.setStatus(api(), 'ann/site', sha, {
          state,
          context: 'nebo/x',
          description,
          url: 'http://n/1',
        });
      }
      const words = part.statuses('ann/site', sha).map(({ state }) => state);
      const failed = dialect === 'gitlab' ? 'failed' : 'failure';
      expect(words).toEqual(dialect === 'gitflic' ? [] : ['pending', 'success', failed]);
      for (const status of part.statuses('ann/site', sha))
        expect(status).toMatchObject({ context: 'nebo/x', url: 'http://n/1', description: 'd'.repeat(140) });
    });

    it('reads the deliveries of real pushes, whose signatures hold for their secret only', async () => {
      part.delivers = true;
      part.repository('ann/site').hooks.push({
        id: '1',
        url: `${part.url}/nowhere`,
        secret: 'the secret',
        active: true,
      });
      part.deliveries.length = 0;
      const sha = await part.push('ann/site', { files: { 'docs/a.md': '1' }, message: 'Docs' });
      await part.pushRef('ann/site', 'HEAD:refs/tags/v1');
      await part.ping('ann/site');
      const [push, tag, ping] = part.deliveries.map(({ headers, body }) => {
        const bytes = Buffer.from(body);
        expect(host.verify(headers, bytes, 'the secret')).toBe(true);
        expect(host.verify(headers, bytes, 'another')).toBe(false);
        expect(host.verify(headers, bytes, '')).toBe(false);
        const bare = Object.fromEntries(
          Object.entries(headers).filter(([name]) => !host.signatureHeaders.includes(name)),
        );
        expect(host.verify(bare, bytes, 'the secret')).toBe(false);
        for (const name of host.signatureHeaders)
          for (const value of ['', 'sha256=', ['a', 'b']])
            expect(host.verify({ ...bare, [name]: value }, bytes, 'the secret')).toBe(false);
        return host.read(headers, JSON.parse(body));
      });
      const silent = dialect === 'gitflic';
      expect(push).toEqual({
        kind: 'push',
        repo_full_name: 'ann/site',
        branch: 'main',
        tag: null,
        deleted: false,
        commit: silent ? null : sha,
        message: silent ? null : expect.stringMatching(/^Docs/),
        author: silent ? null : 'Ann Author',
        // The first push of this suite's branch brought `a` along.
        files: silent ? null : expect.arrayContaining(['docs/a.md']),
      });
      expect(tag).toMatchObject({ kind: 'push', branch: null, tag: 'v1' });
      expect(ping!.kind).toBe(dialect === 'gitlab' ? 'other' : 'ping');
    });

    it('gives an address for clones that git can use with the token', async () => {
      const { url, username } = host.clone(addresses, 'ann/site', 'ann');
      const basic = Buffer.from(`${username}:${part.token}`).toString('base64');
      const refs = `${url}/info/refs?service=git-upload-pack`;
      const answer = await fetch(refs, { headers: { authorization: `Basic ${basic}` } });
      expect(answer.status).toBe(200);
      expect(await answer.text()).toContain('refs/heads/main');
      expect((await fetch(refs)).status).toBe(401);
    });

    it('tells trouble apart: away, asked to come later, not JSON, and an address that is not allowed', async () => {
      part.trouble = 503;
      expect(await failure(host.account(api()))).toBe('away');
      part.trouble = 429;
      expect(await failure(host.account(api()))).toBe('away');
      part.trouble = 418;
      expect(await failure(host.account(api()))).toBe('unexpected');
      part.trouble = null;
      const strict = new GitApi(
        createSafeClient({ httpsOnly: true }),
        part.api,
        (text) => host.headers(text),
        't',
      );
      expect(await failure(host.account(strict))).toBe('refused');
    });
  });
}

it('every kind that an app may name is there, and the hosted ones need no address', () => {
  expect(gitHosts.map(({ provider }) => provider).sort()).toEqual([...gitDialects].sort());
  const hosted = gitHosts.filter((host) => host.addresses(null) !== null).map(({ provider }) => provider);
  expect(hosted.sort()).toEqual(['gitflic', 'github', 'gitlab', 'gitverse'] satisfies GitDialect[]);
});
