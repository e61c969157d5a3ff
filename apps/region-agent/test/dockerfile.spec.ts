import { BuildFailure } from '../src/builds/tree.js';
import { checkTriggers, readDockerfile } from '../src/engine/dockerfile.js';
import { IgnoreFile } from '../src/engine/ignore-file.js';

const read = (text: string, values: Record<string, string> = {}) =>
  readDockerfile(text, new Map(Object.entries(values)));

describe('a Dockerfile', () => {
  it('tells its arguments and the images that it stands on', () => {
    const file = read(
      [
        '# syntax=x',
        'ARG VERSION=24 OTHER',
        'ARG BASE="node"',
        'FROM --platform=linux/amd64 ${BASE}:$VERSION AS build',
        'ARG TOKEN',
        'RUN one \\',
        '# in between',
        '',
        '  two',
        'FROM build',
        'COPY --from=build /a /b',
        'COPY --from=0 /a /b',
        'COPY --chown=1 --from=tools:3 /a /b',
        'FROM scratch',
      ].join('\n'),
      { VERSION: '26' },
    );
    expect([...file.args]).toEqual(['VERSION', 'OTHER', 'BASE', 'TOKEN']);
    expect(file.images).toEqual(['node:26', 'tools:3']);
    expect(read('ARG A\nFROM ${A:-debian:12}').images).toEqual(['debian:12']);
    expect(read('ARG A=12\nARG B="debian:$A"\nFROM $B').images).toEqual(['debian:12']);
    expect(() => read('ARG A=1\nFROM ${A:+debian}')).toThrow(BuildFailure);
    expect(() => read('ARG A\nFROM $A')).toThrow(/line 2 .*which image "\$A" means cannot be known/);
  });

  it.each([
    'ADD http://10.0.0.1/x /x',
    'add https://example.com/x /x',
    'ADD --chown=1:1 a HTTP://example.com/x /x/',
    'ADD ["http://10.0.0.1/x", "/x"]',
    'ADD h\\ttp://10.0.0.1/x /x',
    'ADD "http"://10.0.0.1/x /x',
    'ADD $URL /x',
    'ADD ${A}ttp://x /x',
    'ADD htt${A} /x',
    'ADD git@example.com:a/b.git /x',
    'ADD git://example.com/a /x',
    'ADD \\\n  http://10.0.0.1/x /x',
    'ONBUILD ADD http://10.0.0.1/x /x',
    'RUN --network=host id',
    'RUN --mount=type=cache,target=/x id',
    'RUN --mount=type=bind,from=base,target=/x id',
    'RUN --network=none \\\n --mount=type=secret,id=x id',
    'ONBUILD RUN --mount=type=cache,target=/x id',
    'RUN --network=container:x id',
    'RUN --security=insecure id',
    // Whoever takes ` for the end of a continued line sees another file.
    '# escape=\\\nRUN x `\nADD http://10.0.0.1/x /x',
    'RUN x `\nADD http://10.0.0.1/x /x',
    // What engines, written in Go, take for white space, and what they take out of words.
    '\u0085ADD http://10.0.0.1/x /x',
    'ADD \u0085http://10.0.0.1/x /x',
    'ADD \ufffdhttp://10.0.0.1/x /x',
    'ADD ["\\u0068ttp\\u003a\\u002f/10.0.0.1/x", "/x"]',
    'RUN --net"work"=host id',
    "RUN --'mount'=type=cache,target=/x id",
    'RUN --mo\\unt=type=bind,target=/x id',
    'RUN \ufffd--network=host id',
    'RUN --network=none\u00c5--network=host id',
    'RUN --network host id',
    // Newer engines do not take an escaped one for the end of a continued line, none takes one before such a space.
    'RUN echo \\\\\nADD \\\n http://10.0.0.1/x /x',
    'RUN echo \\\u00a0\nADD \\\n http://10.0.0.1/x /x',
    "RUN <<'a\\'\na\\\nADD \\\n http://10.0.0.1/x /x",
    'COPY --from base:1 /a /b',
    'FROM --platform linux/amd64 base:1',
  ])('what the engine would do outside of the build is refused: %s', (line) => {
    expect(() => read(`FROM scratch\n${line}\n`)).toThrow(BuildFailure);
  });

  it.each([
    ['FROM base:1\nRUN echo \\\\\nFROM dir:/etc'],
    ['FROM base:1\nRUN echo \\\u00a0\nFROM dir:/etc'],
    ['FROM base:1\nRUN echo \\\n\ufeff\nFROM dir:/etc'],
    ['FROM base:1\n\u0085FROM dir:/etc'],
    ['# syntax=x\n# escape=`\nFROM base:1\nRUN echo \\\nFROM dir:/etc'],
    ['\ufeff# escape=`\nFROM base:1\nRUN echo \\\nFROM dir:/etc'],
    ['FROM base:1\nCOPY --fr"om"=dir:/etc /a /b'],
    ['FROM base:1\nCOPY --chown=1 --\\from=dir:/etc /a /b'],
  ])('an image does not hide from being looked at: %j', (text) => {
    expect(read(text).images).toEqual(['base:1', 'dir:/etc']);
  });

  it('what stays inside is fine', () => {
    const fine = [
      'ADD target/${JAR} app.jar',
      'ADD files.tar.gz /x',
      'RUN curl http://example.com --network=host',
      'RUN --network=none id',
      'COPY http /x',
      'ENTRYPOINT ["ADD", "http://x", "y"]',
      'CMD echo ADD http://x y',
      'RUN npm \\\n  run --if-present build',
      'RUN git remote \\\n  add origin https://example.com/x',
      'RUN cat <<< "a\\nb" && printf "a\\\\" \\\n  && echo',
      'COPY --link --chown=1:1 a b',
    ];
    expect(read(`FROM scratch\n${fine.join('\n')}\n`).images).toEqual([]);
    expect(() => checkTriggers('a', ['COPY . .', 'RUN make'])).not.toThrow();
    expect(() => checkTriggers('a', ['ADD http://x/y /z'])).toThrow(/^ONBUILD of the image a/);
    expect(() => checkTriggers('a', ['ENV A=1\nADD http://x/y /z'])).toThrow(/^ONBUILD of the image a/);
  });
});

it('a Dockerfile that is meant to takes no longer', () => {
  const began = performance.now();
  for (const part of ['\n', ' ', '#', '\\ ', '<<a ', '${a', '--a ', 'RUN \\\n'])
    try {
      read(`FROM scratch\nRUN a ${part.repeat(1_000_000 / part.length)}b\n`);
    } catch (error) {
      expect(error).toBeInstanceOf(BuildFailure);
    }
  expect(performance.now() - began).toBeLessThan(10_000);
});

describe('a .dockerignore', () => {
  const out = (text: string, path: string) => new IgnoreFile(text).out(path, false);

  it.each([
    ['*.log', 'a.log', true],
    ['*.log', 'a/b.log', false],
    ['**/*.log', 'a/b.log', true],
    ['**/*.log', 'b.log', true],
    ['/dist/', 'dist/x/y', true],
    ['dist', 'distant', false],
    ['a/*/c', 'a/b/c', true],
    ['a/*/c', 'a/b/d/c', false],
    ['a/**', 'a/b/c', true],
    ['a?c', 'abc', true],
    ['a?c', 'a/c', false],
    ['[a-c]x', 'bx', true],
    ['[^a-c]x', 'bx', false],
    ['\\*x', '*x', true],
    ['\\*x', 'ax', false],
    ['# a', '# a', false],
    ['node_modules\n!node_modules/keep', 'node_modules/keep/x', false],
    ['node_modules\n!node_modules/keep', 'node_modules/else', true],
    ['*\n!src\nsrc/secret', 'src/secret', true],
    ['*\n!src\nsrc/secret', 'src/main', false],
    ['', 'a', false],
  ])('%j of %s: %s', (text, path, expected) => {
    expect(out(text, path)).toBe(expected);
  });

  it('looks into folders that something is taken back from', () => {
    const file = new IgnoreFile('a\n!a/b');
    expect(file.out('a', true)).toBe(false);
    expect(new IgnoreFile('a').out('a', true)).toBe(true);
  });

  it('takes no longer for patterns that are meant to', () => {
    const began = performance.now();
    expect(out(`${'**a'.repeat(90)}b`, 'a'.repeat(3_000))).toBe(false);
    expect(performance.now() - began).toBeLessThan(5_000);
  });
});
