import { createHmac } from 'node:crypto';
import { gitPayloads } from '@nebo/test-kit';
import { gitHosts } from './host-list.js';
import { standardSignatureHolds } from './signatures.js';

const hostOf = (dialect: string) => gitHosts.find(({ provider }) => provider === dialect)!;
const corpus = gitPayloads();

describe('kept deliveries of git hosts', () => {
  it('cover every host: pushes, tags, deletions, forced pushes, empty commits, tests of the webhook', () => {
    for (const { provider } of gitHosts) {
      const names = corpus.filter(({ dialect }) => dialect === provider).map(({ name }) => name);
      expect(names).toEqual(
        expect.arrayContaining([
          'push',
          'tag',
          'branch-delete',
          'force-push',
          'empty-commit',
          'ping',
          'new-branch',
        ]),
      );
    }
    expect(corpus.length).toBeGreaterThanOrEqual(50);
  });

  it.each(corpus.map((kept) => [`${kept.dialect} ${kept.name}`, kept] as const))(
    '%s is read as it says, and believed with its own secret only',
    (_name, { dialect, signed, says }) => {
      const host = hostOf(dialect);
      const { headers, body } = signed('a secret');
      const bytes = Buffer.from(body);
      expect(host.read(headers, JSON.parse(body))).toEqual(says);
      expect(host.verify(headers, bytes, 'a secret')).toBe(true);
      expect(host.verify(headers, bytes, 'a secreT')).toBe(false);
      // A host that has no secret leaves the headers empty: that is no signature, whatever ours is.
      for (const secret of ['', 'a secret'])
        expect(host.verify(signed('').headers, bytes, secret)).toBe(false);
    },
  );

  it('bytes that were changed in any place are not believed, where the signature is over them', () => {
    for (const { dialect, signed } of corpus) {
      if (dialect === 'gitlab' || dialect === 'gitflic') continue;
      const { headers, body } = signed('a secret');
      for (let at = 0; at < body.length; at += Math.ceil(body.length / 40)) {
        const bytes = Buffer.from(body);
        bytes[at]! ^= 1;
        expect(hostOf(dialect).verify(headers, bytes, 'a secret')).toBe(false);
      }
    }
  });

  it('what is no delivery is refused or read as nothing to build, never thrown through', () => {
    const bodies: unknown[] = [null, 1, 'x', [], {}, { ref: 5 }, { ref: 'refs/heads/x' }, { ref: 'main' }];
    bodies.push(
      { object_kind: 'push' },
      { action: 'BRANCH_UPDATE' },
      { repository: null },
      { __proto__: null },
    );
    for (const host of gitHosts)
      for (const body of bodies)
        for (const event of ['push', 'ping', '', 'x'.repeat(500)]) {
          const names = ['github', 'gitea', 'gitverse'].map((name) => [`x-${name}-event`, event]);
          let kind = 'refused';
          try {
            kind = host.read(Object.fromEntries(names), body).kind;
          } catch (error) {
            expect((error as Error).message).toMatch(/^a push without/);
          }
          expect(['refused', 'ping', 'other']).toContain(kind);
        }
  });
});

describe('signatures of Standard Webhooks', () => {
  const body = Buffer.from('{"a":1}');
  const now = 1_800_000_000_000;
  const sign = (secret: string, time: number, id = 'msg_1') => ({
    'webhook-id': id,
    'webhook-timestamp': String(time),
    'webhook-signature': `v1,${createHmac('sha256', secret).update(`${id}.${time}.`).update(body).digest('base64')}`,
  });
  const gitlab = hostOf('gitlab');

  it('hold for their secret and a time within five minutes', () => {
    const headers = sign('s', now / 1_000);
    expect(standardSignatureHolds(headers, body, 's', now)).toBe(true);
    expect(gitlab.verify(headers, body, 's', now)).toBe(true);
    // The form in which such secrets are handed out: the key in base64.
    expect(standardSignatureHolds(headers, body, 'whsec_cw==', now)).toBe(true);
    expect(standardSignatureHolds(headers, body, 's', now + 299_000)).toBe(true);
    for (const away of [301_000, -301_000])
      expect(standardSignatureHolds(headers, body, 's', now + away)).toBe(false);
    const rotated = { ...headers, 'webhook-signature': `v1,AAAA ${headers['webhook-signature']}` };
    expect(standardSignatureHolds(rotated, body, 's', now)).toBe(true);
  });

  it('do not hold for another body, id, time or secret, nor beside a token that is wrong', () => {
    const headers = sign('s', now / 1_000);
    expect(standardSignatureHolds(headers, Buffer.from('{"a":2}'), 's', now)).toBe(false);
    expect(standardSignatureHolds({ ...headers, 'webhook-id': 'msg_2' }, body, 's', now)).toBe(false);
    expect(standardSignatureHolds({ ...headers, 'webhook-timestamp': '1800000001' }, body, 's', now)).toBe(
      false,
    );
    for (const secret of ['', 'S', 'whsec_dA'])
      expect(standardSignatureHolds(headers, body, secret, now)).toBe(false);
    for (const wrong of ['', 'v1,', 'v2,x', headers['webhook-signature'].slice(3)])
      expect(standardSignatureHolds({ ...headers, 'webhook-signature': wrong }, body, 's', now)).toBe(false);
    for (const token of ['', 'x'])
      expect(gitlab.verify({ ...headers, 'x-gitlab-token': token }, body, 's', now)).toBe(false);
  });
});
