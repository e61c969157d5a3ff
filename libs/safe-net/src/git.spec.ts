import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { startCanaries, startOrigin } from '../test/world.js';
import { SafeNetRefused } from './errors.js';
import { prepareGit, safeGitArgs } from './git.js';
import { parseAllowList } from './policy.js';
import { startEgressProxy } from './proxy.js';

const run = promisify(execFile);

describe('remotes that are refused', () => {
  // prettier-ignore
  it.each([
    // options in place of URLs, and transport helpers
    '-u', '--upload-pack=touch /tmp/x', '-oProxyCommand=touch /tmp/x', 'ext::sh -c id', 'ext::sh', 'fd::17', 'transport::https://example.com/a', 'EXT::x',
    'ssh://-oProxyCommand=x/a', 'ssh://git@-oProxyCommand=x/a', 'git@-oProxyCommand=x:a', '-x@example.com:a', 'ssh://-x@example.com/a',
    // schemes
    'file:///etc', 'file://localhost/etc', 'git://github.com/a/b', 'http://github.com/a/b', 'ftp://github.com/a', 'ftps://github.com/a', 'rsync://github.com/a', 'git+ssh://github.com/a/b',
    'ssh+git://github.com/a/b', '/etc/passwd', './repo', '../repo', 'repo', '', 'C:\\repo', 'javascript:alert(1)', 'data:text/plain,x',
    // credentials, queries, ports
    'https://user:pass@github.com/a/b', 'https://token@github.com/a/b', 'ssh://git:pass@github.com/a/b', 'https://github.com/a?x=y', 'https://github.com/a#x', 'https://github.com', 'https://github.com/',
    'https://github.com:22/a/b', 'https://github.com:8443/a/b', 'ssh://git@github.com:2222/a/b', 'ssh://git@github.com:443/a/b', 'ssh://we$ird@github.com/a',
    // control characters
    'https://github.com/a\nb', 'https://github.com/a b', 'https://github.com\\@evil/a', 'https://github.com/\ta', 'https://github.com/a\u0000', '\nhttps://github.com/a/b', 'git@github.com:a\nb',
    // private places
    'https://127.0.0.1/a/b', 'https://localhost/a/b', 'https://2130706433/a', 'https://0x7f.1/a', 'https://[::1]/a', 'https://169.254.169.254/latest', 'https://10.0.0.1/a', 'https://[::ffff:127.0.0.1]/a',
    'ssh://git@127.0.0.1/a', 'ssh://git@127.1/a', 'ssh://git@2130706433/a', 'ssh://git@0x7f000001/a', 'ssh://git@localhost/a', 'ssh://git@[::1]/a', 'ssh://git@git.internal/a', 'ssh://git@１２７.０.０.１/a',
    'git@127.0.0.1:a/b', 'git@localhost:a/b', 'git@10.0.0.1:a', 'git@[::1]:a/b', 'git@gitea:a/b', 'localhost:a/b', '127.1:a/b', 'git@0177.0.0.1:a', 'git@git.svc:a', 'git@169.254.169.254:a/b',
    `https://github.com/${'a'.repeat(3_000)}`,
  ])('%j', (url) => {
    expect(() => safeGitArgs(url, { directory: '/tmp/x' })).toThrow(SafeNetRefused);
  });

  it.each([
    '-x',
    '--help',
    'a b',
    'a..b',
    'a~1',
    'a^',
    'a:b',
    'a?',
    'a*',
    'a[',
    'a\\b',
    'a.lock',
    'a/.b',
    'a//b',
    '/a',
    'a/',
    'a.',
    'a@{1}',
    '',
    'a\nb',
    'x'.repeat(300),
  ])('ref %j', (ref) => {
    expect(() => safeGitArgs('https://github.com/a/b', { directory: '/tmp/x', ref })).toThrow(SafeNetRefused);
  });

  it('a fetch takes one commit or ref into a folder that is there', () => {
    const commit = 'a'.repeat(40);
    const { args, url } = safeGitArgs('https://github.com/a/b', {
      command: 'fetch',
      directory: 'repo',
      commit,
    });
    const words = ['fetch', '--quiet', '--depth=1', '--no-tags', '--no-recurse-submodules'];
    expect(args.slice(-10)).toEqual(['-C', 'repo', ...words, '--', url, commit]);
    expect(args).toEqual(expect.arrayContaining(['core.hooksPath=/dev/null', 'http.followRedirects=false']));
    const ref = safeGitArgs('https://github.com/a/b', {
      command: 'fetch',
      directory: 'r',
      ref: 'refs/heads/x',
      depth: 9,
    });
    expect(ref.args.slice(-1)).toEqual(['refs/heads/x']);
    expect(ref.args).toContain('--depth=9');
    for (const wrong of ['main', 'A'.repeat(40), 'a'.repeat(39), `${commit}:refs/heads/x`, '-x', ''])
      expect(() =>
        safeGitArgs('https://github.com/a/b', { command: 'fetch', directory: 'r', commit: wrong }),
      ).toThrow(SafeNetRefused);
    for (const options of [{ directory: 'r' }, { commit }, { commit, directory: '-r' }])
      expect(() => safeGitArgs('https://github.com/a/b', { command: 'fetch', ...options })).toThrow(
        SafeNetRefused,
      );
  });

  it('a bad depth or directory', () => {
    const url = 'https://github.com/a/b';
    expect(() => safeGitArgs(url)).toThrow(SafeNetRefused);
    expect(() => safeGitArgs(url, { directory: '-x' })).toThrow(SafeNetRefused);
    for (const depth of [0, -1, 1.5, NaN])
      expect(() => safeGitArgs(url, { directory: '/x', depth })).toThrow(SafeNetRefused);
  });
});

describe('remotes that are legal', () => {
  it.each([
    ['https://github.com/owner/repo.git', 'https://github.com/owner/repo.git'],
    ['https://GitHub.com/Owner/Repo', 'https://github.com/Owner/Repo'],
    ['https://gitlab.com/group/sub/repo.git', 'https://gitlab.com/group/sub/repo.git'],
    ['https://gitverse.ru/a/b', 'https://gitverse.ru/a/b'],
    ['https://codeberg.org:443/a/b', 'https://codeberg.org/a/b'],
    ['https://git.example.com/~user/repo', 'https://git.example.com/~user/repo'],
    ['ssh://git@github.com/a/b.git', 'ssh://git@github.com/a/b.git'],
    ['ssh://github.com/a/b.git', 'ssh://git@github.com/a/b.git'],
    ['ssh://deploy@git.example.com:22/a/b', 'ssh://deploy@git.example.com:22/a/b'],
    ['git@github.com:owner/repo.git', 'ssh://git@github.com/owner/repo.git'],
    ['github.com:owner/repo', 'ssh://git@github.com/owner/repo'],
    ['git@gitlab.com:/abs/repo', 'ssh://git@gitlab.com/abs/repo'],
    ['https://1.1.1.1/a', 'https://1.1.1.1/a'],
    ['https://[2606:4700::1111]/a', 'https://[2606:4700::1111]/a'],
  ])('%s', (given, used) => {
    const call = safeGitArgs(given, { directory: '/srv/x', ref: 'feature/new-1.0' });
    expect(call.url).toBe(used);
    expect(call.args.slice(-3)).toEqual(['--', used, '/srv/x']);
    expect(call.args).toEqual(
      expect.arrayContaining([
        'clone',
        '--depth=1',
        '--no-recurse-submodules',
        '--branch=feature/new-1.0',
        'protocol.ext.allow=never',
        'http.followRedirects=false',
      ]),
    );
    expect(call.env).toMatchObject({
      GIT_ALLOW_PROTOCOL: 'https:ssh',
      GIT_TERMINAL_PROMPT: '0',
      GIT_CONFIG_NOSYSTEM: '1',
    });
  });

  it('ls-remote has no directory', () => {
    expect(
      safeGitArgs('https://github.com/a/b', { command: 'ls-remote', ref: 'main' }).args.slice(-4),
    ).toEqual(['ls-remote', '--', 'https://github.com/a/b', 'main']);
  });

  it('are pinned to the address that was checked', async () => {
    const lookup = async () => ['140.82.121.4', '140.82.121.3'];
    const https = await prepareGit('https://github.com/a/b', { directory: '/x', lookup });
    expect(https.args).toContain('http.curloptResolve=github.com:443:140.82.121.4');
    const ssh = await prepareGit('git@github.com:a/b', {
      directory: '/x',
      lookup,
      sshKeyFile: "/k's",
      sshKnownHostsFile: '/known',
    });
    expect(ssh.env['GIT_SSH_COMMAND']).toContain(`'HostName=140.82.121.4'`);
    expect(ssh.env['GIT_SSH_COMMAND']).toContain(`'HostKeyAlias=github.com'`);
    expect(ssh.env['GIT_SSH_COMMAND']).toContain(`'IdentityFile=/k'\\''s'`);
    await expect(
      prepareGit('https://github.com/a/b', { directory: '/x', lookup: async () => ['1.1.1.1', '10.0.0.1'] }),
    ).rejects.toMatchObject({ rule: 'address:private' });
    await expect(
      prepareGit('git@github.com:a/b', { directory: '/x', lookup: async () => ['::1'] }),
    ).rejects.toMatchObject({ rule: 'address:loopback' });
  });
});

const version = await run('git', ['--version']).then(
  ({ stdout }) => stdout.trim(),
  () => null,
);
if (version === null) process.stderr.write('skipped: git itself, which is not installed\n');

(version === null ? describe.skip : describe)('git itself', () => {
  it('takes the arguments, asks the allowed host and nobody else', async () => {
    const asked: string[] = [];
    const origin = await startOrigin((request, response) => {
      asked.push(request.url!);
      response.writeHead(404).end();
    });
    const allow = parseAllowList(`127.0.0.1:${origin.port}`);
    const call = await prepareGit(`http://127.0.0.1:${origin.port}/a/b.git`, { command: 'ls-remote', allow });
    await expect(run('git', call.args, { env: call.env })).rejects.toThrow(/not found/);
    expect(asked[0]).toBe('/a/b.git/info/refs?service=git-upload-pack');
    await origin.stop();
  });

  it('does not follow a redirect to a private address', async () => {
    const canaries = await startCanaries();
    const origin = await startOrigin((request, response) =>
      response.writeHead(302, { location: `http://127.0.0.1:${canaries.port}${request.url}` }).end(),
    );
    const call = await prepareGit(`http://127.0.0.1:${origin.port}/a`, {
      command: 'ls-remote',
      allow: parseAllowList(`127.0.0.1:${origin.port}`),
    });
    await expect(run('git', call.args, { env: call.env })).rejects.toThrow();
    expect(canaries.hits()).toBe(0);
    await Promise.all([origin.stop(), canaries.stop()]);
  });

  it('uses the pinned address, whatever the name resolves to', async () => {
    const asked: (string | undefined)[] = [];
    const origin = await startOrigin((request, response) => {
      asked.push(request.headers.host);
      response.writeHead(404).end();
    });
    // The allow list names the host; git would find no address for it by itself.
    const call = await prepareGit(`http://git.example.invalid:${origin.port}/a`, {
      command: 'ls-remote',
      allow: parseAllowList(`git.example.invalid:${origin.port}`),
      lookup: async () => ['127.0.0.1'],
    });
    await expect(run('git', call.args, { env: call.env })).rejects.toThrow(/not found/);
    expect(asked).toEqual([`git.example.invalid:${origin.port}`]);
    await origin.stop();
  });

  it('goes through the egress proxy, which refuses private addresses', async () => {
    const log: string[] = [];
    const proxy = await startEgressProxy({
      lookup: async () => ['10.0.0.1'],
      log: (entry) => log.push(`${entry.target} ${entry.rule}`),
    });
    const call = await prepareGit('https://github.com/a/b', { command: 'ls-remote', proxy: proxy.url! });
    await expect(run('git', call.args, { env: call.env })).rejects.toThrow(/403/);
    expect(log).toEqual(['github.com:443 address:private']);
    await proxy.stop();
  });
});
