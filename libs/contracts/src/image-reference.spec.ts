import { imageReferenceText, InvalidImageReference, parseImageReference } from './image-reference.js';

const digest = `sha256:${'ab'.repeat(32)}`;

describe('references of images', () => {
  it.each([
    ['nginx', 'docker.io/library/nginx:latest'],
    ['nginx:1.27', 'docker.io/library/nginx:1.27'],
    ['ann/web', 'docker.io/ann/web:latest'],
    ['docker.io/nginx', 'docker.io/library/nginx:latest'],
    ['index.docker.io/library/nginx', 'docker.io/library/nginx:latest'],
    ['registry.example.com/web', 'registry.example.com/web:latest'],
    ['Registry.Example.com/a/b/c:V1.0', 'registry.example.com/a/b/c:V1.0'],
    ['registry.example.com:5000/web', 'registry.example.com:5000/web:latest'],
    ['localhost/web', 'localhost/web:latest'],
    ['localhost:5000/web:x', 'localhost:5000/web:x'],
    ['127.0.0.1:5000/web', '127.0.0.1:5000/web:latest'],
    ['docker.io:5000/web', 'docker.io:5000/web:latest'],
    [`nginx@${digest}`, `docker.io/library/nginx@${digest}`],
    [`ann/web:1@${digest}`, `docker.io/ann/web:1@${digest}`],
    ['a__b/c--d', 'docker.io/a__b/c--d:latest'],
  ])('%s is %s', (text, full) => {
    expect(imageReferenceText(parseImageReference(text))).toBe(full);
  });

  it('what is written in full means the same', () => {
    for (const text of ['nginx', 'registry.example.com:5000/web', `ann/web:1@${digest}`]) {
      const parsed = parseImageReference(text);
      expect(parseImageReference(imageReferenceText(parsed))).toEqual(parsed);
    }
  });

  it.each([
    ['', /empty/],
    ['https://registry.example.com/web', /without https/],
    ['a b', /spaces/],
    ['nginx\n', /spaces/],
    ['Nginx', /lower case/],
    ['ann/Web', /lower case/],
    ['nginx:', /tag/],
    ['nginx:-x', /tag/],
    [`nginx:${'a'.repeat(129)}`, /tag/],
    ['nginx:a/b', /no host and port/],
    ['nginx@sha256:abc', /digest/],
    [`nginx@SHA256:${'ab'.repeat(32)}`, /digest/],
    [`nginx@sha512:${'ab'.repeat(64)}`, /digest/],
    ['nginx@', /digest/],
    ['registry.example.com/', /must name an image/],
    ['registry.example.com:0/a', /no host and port/],
    ['registry.example.com:99999/a', /no host and port/],
    ['user:pass@registry.example.com/a', /digest/],
    ['-x.example.com/a', /no host and port/],
    ['[::1]:5000/a', /no host and port/],
    ['a//b', /name of an image/],
    ['../a', /no host and port/],
    ['a/../b', /name of an image/],
    ['a/.b', /name of an image/],
    ['a._b', /name of an image/],
    ['a/b?c', /name of an image/],
    ['a/b%2f', /name of an image/],
    [`ann/${'a'.repeat(256)}`, /255/],
    ['x'.repeat(501), /500/],
  ])('%j is none', (text, why) => {
    expect(() => parseImageReference(text)).toThrow(InvalidImageReference);
    expect(() => parseImageReference(text)).toThrow(why);
  });
});
