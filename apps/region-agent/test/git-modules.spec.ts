import { moduleReason, moduleUrl, readModules } from '../src/builds/git-modules.js';

describe('submodules of a repository', () => {
  it('are read from .gitmodules; what leaves the tree or touches git is left out', () => {
    const text = [
      '# a comment',
      '[submodule "one"]',
      '\tpath = libs/one',
      '\turl = https://git.example.org/a/one.git',
      '\tbranch = main',
      '[submodule "two"]',
      'url=../two.git',
      '  path = "libs/two words"',
      '[other]',
      'path = x',
    ];
    const evil = ['../up', '/etc', 'a/../b', '.git', 'a/.GIT/hooks', '-x', 'a\\b', 'a//b', '.', ''];
    for (const path of evil) text.push(`[submodule "evil ${path}"]`, `path = ${path}`, 'url = https://h/x');
    expect(readModules(text.join('\r\n'))).toEqual([
      { path: 'libs/one', url: 'https://git.example.org/a/one.git' },
      { path: 'libs/two words', url: '../two.git' },
    ]);
    const many = Array.from(
      { length: 300 },
      (_, index) => `[submodule "m"]\npath = m${index}\nurl = ./x`,
    ).join('\n');
    expect(readModules(many)).toHaveLength(100);
  });

  it.each([
    ['../two.git', 'https://git.example.org/a/two.git'],
    ['./in.git', 'https://git.example.org/a/one.git/in.git'],
    ['../../b/two.git', 'https://git.example.org/b/two.git'],
    ['https://other.example/x.git', 'https://other.example/x.git'],
    ['git@git.example.org:a/two.git', 'https://git.example.org/a/two.git'],
    ['ssh://git@GIT.example.org:2222/a/two.git', 'https://git.example.org/a/two.git'],
  ])('%s is fetched at %s', (given, url) => {
    expect(moduleUrl('https://git.example.org/a/one.git', given)).toEqual({ url });
  });

  it.each([
    'git@other.example:a/b.git',
    'file:///etc',
    'ext::sh -c id',
    '/srv/git/x.git',
    'https://user:pw@git.example.org/x.git',
    'https://',
    '',
  ])('%s is not fetched', (given) => {
    expect(moduleUrl('https://git.example.org/a/one.git', given)).toEqual({ why: expect.any(String) });
    expect(JSON.stringify(moduleUrl('https://git.example.org/a/one.git', given))).not.toContain('pw');
  });

  it('says what git said as a reason', () => {
    expect(moduleReason('fatal: Authentication failed for x')).toMatch(/not public/);
    expect(moduleReason('fatal: repository x not found')).toMatch(/no such repository/);
    expect(moduleReason('fatal: remote error: upload-pack: not our ref')).toMatch(/not there any more/);
    expect(moduleReason('something else')).toMatch(/could not fetch/);
  });
});
