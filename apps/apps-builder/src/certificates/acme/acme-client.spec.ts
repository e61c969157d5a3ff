import { createPrivateKey } from 'node:crypto';
import { type SafeClient, SafeNetFailed } from '@nebo/safe-net';
import { AcmeClient } from './acme-client.js';
import { retryAfter, sentenceOf } from './acme-error.js';
import { newKeyPem } from './jws.js';

type Scripted = { status: number; headers?: Record<string, string>; body?: unknown };

/** An authority as a script: the directory, nonces, and what the test says to all else. */
function authority(answer: (url: string, body: string) => Scripted) {
  const asked: { url: string; payload: unknown; head: Record<string, unknown> }[] = [];
  let nonces = 0;
  const client = {
    request: async (url: string, { body = '' }: { body?: string } = {}) => {
      const nonce = { 'replay-nonce': `nonce-${(nonces += 1)}` };
      const reply = ({ status, headers = {}, body: value }: Scripted) => ({
        status,
        headers: { ...nonce, ...headers },
        body: Buffer.from(typeof value === 'string' ? value : JSON.stringify(value ?? {})),
        url,
        redirects: 0,
      });
      if (url.endsWith('/dir'))
        return reply({
          status: 200,
          body: { newNonce: 'https://ca/nonce', newAccount: 'https://ca/acct', newOrder: 'https://ca/order' },
        });
      if (url.endsWith('/nonce')) return reply({ status: 200 });
      const { protected: head, payload } = JSON.parse(body) as Record<string, string>;
      const read = (text: string): unknown =>
        text === '' ? null : JSON.parse(Buffer.from(text, 'base64url').toString());
      asked.push({ url, payload: read(payload!), head: read(head!) as Record<string, unknown> });
      return reply(answer(url, body));
    },
  } as unknown as SafeClient;
  return { acme: new AcmeClient(client, 'https://ca/dir'), asked };
}

const account = { key: createPrivateKey(newKeyPem()), url: 'https://ca/acct/1' };
const problem = (type: string, detail: string) => ({ type: `urn:ietf:params:acme:error:${type}`, detail });

describe('a client of ACME authorities', () => {
  it.each([
    [
      429,
      problem('rateLimited', 'too many'),
      { 'retry-after': '120' },
      'limited',
      120_000,
      'rateLimited: too many',
    ],
    [403, problem('rateLimited', 'too many'), {}, 'limited', null, 'rateLimited: too many'],
    [400, problem('accountDoesNotExist', 'who?'), {}, 'unknown_account', null, 'accountDoesNotExist: who?'],
    [400, problem('rejectedIdentifier', 'not you'), {}, 'refused', null, 'rejectedIdentifier: not you'],
    [503, '<html>busy</html>', { 'retry-after': '5' }, 'away', 5_000, 'status 503'],
    [500, problem('serverInternal', 'oops'), {}, 'away', null, 'serverInternal: oops'],
    [201, '[]', { location: 'https://ca/o/1' }, 'odd', null, 'not a JSON object'],
    [201, { status: 'pending' }, { location: 'https://ca/o/1' }, 'odd', null, 'left out a field'],
    [201, { status: 'pending', authorizations: [], finalize: 'x' }, {}, 'odd', null, 'named no address'],
  ])('an order answered with %i %j is told apart', async (status, body, headers, failure, wait, words) => {
    const { acme } = authority(() => ({ status, body, headers: headers as Record<string, string> }));
    await expect(acme.newOrder(account, ['a.example'])).rejects.toMatchObject({
      failure,
      retryAfterMs: wait,
      message: expect.stringContaining(words),
    });
  });

  it('a nonce that has run out is replaced, three times at most', async () => {
    let refusals = 2;
    const order = { status: 'pending', authorizations: ['https://ca/a/1'], finalize: 'https://ca/f/1' };
    const { acme, asked } = authority(() =>
      refusals-- > 0
        ? { status: 400, body: problem('badNonce', 'stale') }
        : { status: 201, headers: { location: 'https://ca/o/1' }, body: order },
    );
    await expect(acme.newOrder(account, ['a.example'])).resolves.toMatchObject({ url: 'https://ca/o/1' });
    expect(new Set(asked.map(({ head }) => head['nonce'])).size).toBe(3);
    expect(asked[0]).toMatchObject({
      payload: { identifiers: [{ type: 'dns', value: 'a.example' }] },
      head: { alg: 'ES256', kid: 'https://ca/acct/1', url: 'https://ca/order' },
    });
    refusals = 3;
    await expect(acme.newOrder(account, ['a.example'])).rejects.toThrow('badNonce');
  });

  it('registers a key by naming it, and takes the address that it is given', async () => {
    const { acme, asked } = authority(() => ({ status: 201, headers: { location: 'https://ca/acct/7' } }));
    expect(await acme.register(account.key, 'ops@example.com')).toBe('https://ca/acct/7');
    expect(asked[0]!.payload).toEqual({ termsOfServiceAgreed: true, contact: ['mailto:ops@example.com'] });
    expect(asked[0]!.head).toMatchObject({ jwk: { kty: 'EC', crv: 'P-256' } });
  });

  it('one that is away is asked for its directory again the next time', async () => {
    let away = true;
    const client = {
      request: async () => {
        if (away) throw new SafeNetFailed('connect', 'refused');
        return { status: 200, headers: {}, body: Buffer.from('{}'), url: '', redirects: 0 };
      },
    } as unknown as SafeClient;
    const acme = new AcmeClient(client, 'https://ca/dir');
    await expect(acme.newOrder(account, ['a.example'])).rejects.toMatchObject({ failure: 'away' });
    away = false;
    await expect(acme.newOrder(account, ['a.example'])).rejects.toMatchObject({ failure: 'odd' });
  });

  it('foreign words become one short line', () => {
    expect(sentenceOf({ detail: `a\nb\u0000 ${'x'.repeat(900)}` }, '').length).toBeLessThanOrEqual(500);
    expect(sentenceOf({ type: 'urn:x:dns', detail: 'no A', subproblems: [{ detail: 'for b' }] }, '')).toBe(
      'dns: no A; for b',
    );
    expect(sentenceOf(null, 'status 400')).toBe('status 400');
  });

  it.each([
    ['5', 5_000],
    ['Wed, 21 Oct 2026 07:28:10 GMT', 10_000],
    ['soon', null],
    [undefined, null],
  ])('Retry-After %j is %p ms', (text, ms) =>
    expect(retryAfter(text, Date.parse('Wed, 21 Oct 2026 07:28:00 GMT'))).toBe(ms),
  );
});
