import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo } from 'node:net';
import { join } from 'node:path';
import {
  hostArchitecture,
  RegistryPart,
  sha256Digest,
  testImage,
  testLayer,
  type TestImageOptions,
} from '@nebo/test-kit';
import { readDocument } from '../src/images/image-document.js';
import { defaultImageLimits } from '../src/images/image-limits.js';
import { imageUnpacker } from '../src/images/unpack-image.js';
import { imageOf, layerOf, PullBench } from './pull-bench.js';

const other = hostArchitecture === 'amd64' ? 'arm64' : 'amd64';

describe('pulling images', () => {
  let registry: RegistryPart;
  let open: RegistryPart;
  const bench = new PullBench(() => [registry.address, open.address]);
  const { blobs, stored, lines } = bench;
  const pull = bench.pull.bind(bench);
  const refused = bench.refused.bind(bench);

  beforeAll(async () => {
    registry = await RegistryPart.start();
    open = await RegistryPart.start({ wantsToken: false });
  });
  afterAll(async () => {
    await registry.stop();
    await open.stop();
  });
  beforeEach(async () => {
    await bench.begin();
    registry.asked.length = 0;
    Object.assign(registry.faults, {
      slowMs: 0,
      redirectTo: null,
      endless: false,
      next: [],
      realm: null,
      basic: false,
    });
    for (const set of ['truncate', 'corrupt', 'lengthen'] as const) registry.faults[set].clear();
  });
  afterEach(() => bench.end());

  it.each(['oci', 'docker'] as const)(
    'an %s image: settings, layers and digest, with a token',
    async (format) => {
      const image = imageOf(format, {
        format,
        config: {
          Env: ['A=b'],
          Entrypoint: ['/e'],
          Cmd: ['c d'],
          WorkingDir: '/w',
          User: '5:6',
          ExposedPorts: { '81/tcp': {}, '82/udp': {} },
        },
      });
      const { document, artifact } = await pull(registry.push('ann/a', 'v1', image));
      expect(document).toMatchObject({
        digest: image.digest,
        manifest: image.digest,
        settings: {
          env: ['A=b'],
          entrypoint: ['/e'],
          cmd: ['c d'],
          working_dir: '/w',
          user: '5:6',
          ports: [81],
        },
      });
      expect(readDocument(stored.get(artifact.sha256)!)).toEqual(document);
      expect(stored.get(document.layers[0]!.sha256)).toEqual(image.layers[0]!.bytes);
      expect(registry.asked.slice(0, 3)).toEqual([
        'GET /v2/ann/a/manifests/v1',
        'GET /token',
        'GET /v2/ann/a/manifests/v1',
      ]);
      expect(registry.asked.filter((line) => line === 'GET /token')).toHaveLength(1);
      expect(lines[0]).toContain(image.digest);
    },
  );

  it('equal images have equal documents, whatever they are called and wherever they lie', async () => {
    const image = imageOf('same');
    const first = await pull(registry.push('ann/a', 'one', image));
    const second = await pull(open.push('bob/b', 'two', image));
    expect(second.artifact).toEqual(first.artifact);
  });

  it('an index: the image for this host; its digest is the one that was named', async () => {
    const [mine, theirs] = [imageOf('mine'), imageOf('theirs', { architecture: other })];
    const notes = { ...imageOf('notes'), architecture: 'unknown' };
    const index = registry.pushIndex('ann/multi', 'v1', [theirs, notes, mine]);
    const { document } = await pull(`${registry.address}/ann/multi:v1`);
    expect(document).toMatchObject({ digest: index, manifest: mine.digest });
    const pinned = await pull(`${registry.address}/ann/multi@${index}`);
    expect(pinned.document).toEqual(document);
    registry.pushIndex('ann/multi', 'other', [theirs]);
    const why = new RegExp(`nothing for linux/${hostArchitecture}.*it has linux/${other}`);
    await expect(pull(`${registry.address}/ann/multi:other`)).rejects.toThrow(why);
    registry.push('ann/multi', 'single', theirs);
    await expect(pull(`${registry.address}/ann/multi:single`)).rejects.toThrow(`is for linux/${other}`);
  });

  it('a digest that is given decides, whatever the tag says by now', async () => {
    const old = imageOf('old');
    const reference = registry.push('ann/moves', 'stable', old);
    registry.push('ann/moves', 'stable', imageOf('new'));
    const { document } = await pull(reference, { digest: old.digest });
    expect(document.digest).toBe(old.digest);
    await expect(pull(`${reference}@${old.digest}`)).resolves.toMatchObject({ document });
  });

  it('layers that are stored already are not asked for', async () => {
    const base = layerOf('base');
    const image = testImage({ layers: [base, layerOf('top')], config: { Cmd: ['x'] } });
    const { document } = await pull(registry.push('ann/known', 'v1', image), {
      known_layers: [base.digest.slice(7)],
    });
    expect(document.layers).toHaveLength(2);
    expect(registry.asked).not.toContain(`GET /v2/ann/known/blobs/${base.digest}`);
    expect(lines.join('\n')).toContain('is here already');
  });

  it('a blob may come from another host, which gets no token', async () => {
    const seen: (string | undefined)[] = [];
    const elsewhere = createServer((request, response) => {
      seen.push(request.headers.authorization);
      const digest = request.url!.split('/').at(-1)!;
      const blob = [image.config, ...image.layers.map(({ bytes }) => bytes)].find(
        (each) => sha256Digest(each) === digest,
      );
      response.end(blob);
    });
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve));
    const address = `127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
    const image = imageOf('elsewhere');
    const reference = registry.push('ann/moved', 'v1', image);
    try {
      registry.faults.redirectTo = `http://${address}`;
      await pull(reference, { allow: `${registry.address},${address}` });
      expect(seen).toEqual([undefined, undefined]);
      stored.clear();
      // A private host that the operator does not name.
      await refused(pull(reference, { allow: registry.address }), /cannot be asked/);
      expect(seen).toHaveLength(2);
    } finally {
      elsewhere.closeAllConnections();
      elsewhere.close();
    }
  });

  it('429 with Retry-After, 503 and broken connections pass; a limit that stays is a sentence', async () => {
    const image = imageOf('busy');
    const reference = registry.push('ann/busy', 'v1', image);
    registry.faults.next = [
      { status: 429, headers: { 'retry-after': '0' } },
      { status: 503 },
      { status: 502 },
    ];
    await expect(pull(reference)).resolves.toBeDefined();
    const limit = {
      status: 429,
      headers: { 'retry-after': '0' },
      body: '{"errors":[{"message":"too many pulls"}]}',
    };
    registry.faults.next = Array.from({ length: 10 }, () => limit);
    await expect(pull(reference)).rejects.toThrow(
      /allows no more requests for now: it says "too many pulls" \(429\)\. Deploy again later/,
    );
  });

  it('a slow registry is waited for; an abort ends it at once and leaves no half layer', async () => {
    const image = imageOf('slow');
    const reference = registry.push('ann/slow', 'v1', image);
    registry.faults.slowMs = 60_000;
    const stop = new AbortController();
    const work = pull(reference, { signal: stop.signal });
    setTimeout(() => stop.abort(new Error('not wanted any more')), 300);
    await expect(work).rejects.toThrow('not wanted any more');
    expect(stored.size).toBe(0);
  });

  describe('misbehaviour', () => {
    const push = (name: string, more: Partial<TestImageOptions> = {}) => {
      const image = imageOf(name, more);
      return {
        image,
        reference: registry.push(`ann/${name}`, 'v1', image),
        layer: image.layers[0]?.digest ?? '',
      };
    };

    it('another layer, another manifest and other settings than their digests say', async () => {
      const { reference, layer, image } = push('wrong');
      registry.faults.corrupt.add(layer);
      await refused(
        pull(reference),
        /gave other bytes for .*ann\/wrong, blob sha256:.* than its digest says/,
      );
      registry.faults.corrupt.clear();
      registry.faults.corrupt.add(sha256Digest(image.config));
      await refused(pull(reference), /gave other bytes/);
      registry.faults.corrupt.clear();
      registry.faults.corrupt.add(image.digest);
      await refused(pull(reference, { digest: image.digest }), /gave other bytes for .*ann\/wrong@sha256/);
    });

    it('a layer that ends early is asked for again, then given up; one that is too long is refused', async () => {
      const { reference, layer } = push('short');
      registry.faults.truncate.add(layer);
      await refused(pull(reference), /could not give .*ann\/short, blob /);
      expect(registry.asked.filter((line) => line.endsWith(layer))).toHaveLength(4);
      registry.faults.truncate.clear();
      registry.faults.lengthen.add(layer);
      await refused(pull(reference), /gave more bytes .* than its manifest says/);
    });

    it('redirects without end', async () => {
      const { reference } = push('endless');
      registry.faults.endless = true;
      await refused(pull(reference), /cannot be asked: more than 5 redirects/);
    });

    it('a token at a private address, a login in place of a token', async () => {
      const { reference } = push('realm');
      registry.faults.realm = 'http://169.254.169.254/token';
      await refused(pull(reference), /sends for a token to 169\.254\.169\.254, which cannot be asked/);
      registry.faults.realm = 'file:///etc/passwd';
      await refused(pull(reference), /which cannot be asked/);
      registry.faults.realm = 'nothing';
      await refused(pull(reference), /names no place that gives tokens/);
      registry.faults.basic = true;
      await refused(
        pull(reference),
        /wants a user name and password\. .*private: the variables NEBO_REGISTRY_HOST/,
      );
    });

    it('a registry at a private address that the operator does not name', async () => {
      const { reference } = push('private');
      await refused(pull(reference, { allow: '' }), /cannot be asked/);
      await refused(pull('10.0.0.1/a', { allow: '' }), /cannot be asked: .*not a public address/);
      await refused(pull('registry.internal/a', { allow: '' }), /cannot be asked: .*internal name/);
      await refused(
        pull('registry.example.com:22/a', { allow: '' }),
        /cannot be asked: port 22 is not allowed/,
      );
    });

    it('a tag that is not there, a repository that is not there, a blob that is not there', async () => {
      const { reference, image } = push('there');
      await refused(
        pull(reference.replace(':v1', ':v2')),
        /There is no .*ann\/there:v2: the registry says "manifest unknown" \(404\)/,
      );
      await refused(pull(`${registry.address}/ann/nobody`), /There is no .*ann\/nobody:latest/);
      const lost = imageOf('lost');
      registry.putManifest('ann/there', 'lost', lost.manifest, lost.mediaType);
      await refused(pull(`${registry.address}/ann/there:lost`), /"blob unknown to registry"/);
      registry.faults.next = [{ status: 403, body: '{"errors":[{"code":"DENIED"}]}' }];
      await refused(pull(reference), /says "DENIED" \(403\)\. Either it is not there or it is private/);
      expect(image).toBeDefined();
    });

    it.each<[string, Buffer | object, RegExp]>([
      ['no JSON', Buffer.from('<html>'), /no JSON object/],
      ['a huge manifest', Buffer.alloc(5_000_000, 0x20), /larger than 4194304 bytes/],
      ['an old format', { schemaVersion: 1, fsLayers: [] }, /format of before 2016/],
      ['something else', { schemaVersion: 2 }, /kind that is not known here/],
      ['a layer without a digest', { config: {}, layers: [] }, /without a SHA-256 digest/],
      [
        'a digest that leads elsewhere',
        { config: { digest: 'sha256:../../x', size: 1 }, layers: [] },
        /without a SHA-256 digest/,
      ],
      [
        'an index in an index',
        {
          manifests: [{ digest: 'self', size: 2, platform: { os: 'linux', architecture: hostArchitecture } }],
        },
        /without a SHA-256 digest/,
      ],
    ])('a manifest that is %s', async (_, manifest, why) => {
      const bytes = Buffer.isBuffer(manifest) ? manifest : Buffer.from(JSON.stringify(manifest));
      registry.putManifest('ann/odd', 'v1', bytes, 'application/json');
      await refused(pull(`${registry.address}/ann/odd:v1`), why);
    });

    it.each<[string, NonNullable<TestImageOptions['spoil']>, RegExp]>([
      [
        'more layers than its settings know',
        (settings) => (settings['rootfs'] = { diff_ids: [] }),
        /names 1 layers, and its settings 0/,
      ],
      [
        'something that is no layer',
        (_, manifest) => ((manifest['layers'] as { mediaType: string }[])[0]!.mediaType = 'text/html'),
        /no image that can run.*text\/html/,
      ],
      [
        'more than it may have',
        (_, manifest) => ((manifest['layers'] as { size: number }[])[0]!.size = 2 ** 40),
        /MB to pull, and 1074 MB are the most/,
      ],
      [
        'too many layers',
        (_, manifest) =>
          (manifest['layers'] = Array.from({ length: 300 }, () => (manifest['layers'] as object[])[0])),
        /more than 256 layers/,
      ],
      [
        'a command that is no list',
        (settings) => (settings['config'] = { Cmd: 'rm -rf /' }),
        /Cmd is no list of words/,
      ],
      ['another system', (settings) => (settings['os'] = 'windows'), /is for windows/],
    ])('an image with %s', async (_, spoil, why) => {
      await refused(pull(push('spoilt', { spoil }).reference), why);
    });
  });

  describe('unpacking', () => {
    const unpack = imageUnpacker(defaultImageLimits);
    const signal = new AbortController().signal;

    it('one layer over the other, from what was stored', async () => {
      const layers = [
        testLayer(
          [
            { path: 'a', bytes: 'one' },
            { path: 'b', bytes: 'b' },
          ],
          'zstd',
        ),
        testLayer([{ path: 'a', bytes: 'two' }, { path: '.wh.b' }], 'none'),
      ];
      const { artifact } = await pull(registry.push('ann/layers', 'v1', testImage({ layers })));
      const into = join(bench.dir, 'image');
      expect(await unpack(artifact.sha256, into, blobs, signal)).toMatchObject({ sha256: artifact.sha256 });
      expect(await readFile(join(into, 'root/a'), 'utf8')).toBe('two');
      await expect(readFile(join(into, 'root/b'))).rejects.toThrow('ENOENT');
    });

    it('a layer that holds something else than the settings say, and a hostile one, are sentences', async () => {
      const lying = imageOf('lying', {
        spoil: (settings) => (settings['rootfs'] = { diff_ids: [`sha256:${'0'.repeat(64)}`] }),
      });
      const { artifact } = await pull(registry.push('ann/lying', 'v1', lying));
      await expect(unpack(artifact.sha256, join(bench.dir, 'lying'), blobs, signal)).rejects.toThrow(
        /^Layer 1 of 1 \([0-9a-f]{12}\) holds something else than the image settings say/,
      );
      const evil = testImage({ layers: [testLayer([{ path: '../x', bytes: 'x' }])] });
      const pulled = await pull(registry.push('ann/evil', 'v1', evil));
      await expect(unpack(pulled.artifact.sha256, join(bench.dir, 'evil'), blobs, signal)).rejects.toThrow(
        /^Layer 1 of 1 .* cannot be unpacked: "\.\.\/x" has a "\.\."/,
      );
    });
  });
});
