import { createPrivateKey, randomBytes } from 'node:crypto';
import { AllowList, createSafeClient } from '@nebo/safe-net';
import { Config } from '@nebo/service-kit';
import { type AcmePart, findPebble, startAcme } from '@nebo/test-kit';
import { readFileSync } from 'node:fs';
import { AcmeClient } from './acme-client.js';
import { type AccountBinding, bindingOf } from './binding.js';
import { newKeyPem } from './jws.js';

const { found, reason } = findPebble();
const real = found === null ? describe.skip : describe;

real(`an authority that takes only customers${reason === null ? '' : ` (skipped: ${reason})`}`, () => {
  const hmacKey = randomBytes(32);
  let acme: AcmePart;
  beforeAll(async () => {
    acme = await startAcme({ httpPort: 1, bindings: { customer: hmacKey.toString('base64url') } });
  }, 60_000);
  afterAll(() => acme?.stop());

  const register = (binding: AccountBinding | null) => {
    const { hostname, port } = new URL(acme.directory);
    const allow = new AllowList([[hostname, Number(port)]]);
    const http = createSafeClient({ allow, httpsOnly: true, ca: readFileSync(acme.caFile) });
    return new AcmeClient(http, acme.directory).register(createPrivateKey(newKeyPem()), null, binding);
  };

  it('registers a key that is bound to one, and says why it takes no other', async () => {
    await expect(register({ keyId: 'customer', hmacKey })).resolves.toMatch(/^https:/);
    await expect(register(null)).rejects.toMatchObject({
      failure: 'refused',
      message: expect.stringContaining('externalAccountRequired'),
    });
    await expect(register({ keyId: 'stranger', hmacKey })).rejects.toMatchObject({ failure: 'refused' });
    await expect(register({ keyId: 'customer', hmacKey: randomBytes(32) })).rejects.toMatchObject({
      failure: 'refused',
    });
  });
});

describe('the settings of a binding', () => {
  const of = (env: Record<string, string>) => bindingOf(new Config(env));

  it('are two or none', () => {
    expect(of({})).toBeNull();
    expect(
      of({ NEBO_ACME_EAB_KID: 'me', NEBO_ACME_EAB_KEY: Buffer.alloc(32, 1).toString('base64url') }),
    ).toEqual({
      keyId: 'me',
      hmacKey: Buffer.alloc(32, 1),
    });
    for (const env of [{ NEBO_ACME_EAB_KID: 'me' }, { NEBO_ACME_EAB_KEY: 'c2VjcmV0c2VjcmV0c2VjcmV0' }])
      expect(() => of(env as unknown as Record<string, string>)).toThrow('together or not at all');
  });

  it('show no key in what they complain of', () => {
    const complaint = () => of({ NEBO_ACME_EAB_KID: 'me', NEBO_ACME_EAB_KEY: 'my secret!' });
    expect(complaint).toThrow('must be base64url');
    expect(complaint).not.toThrow('my secret');
  });
});
