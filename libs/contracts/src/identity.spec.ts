import { randomBytes } from 'node:crypto';
import { type Identity, IdentitySigner } from './identity.js';

const identity: Identity = { kind: 'service', service: 'compute', account_id: null };

describe('signed identity', () => {
  const signer = new IdentitySigner(randomBytes(32));

  it('reads what it signed, also a second time from memory', () => {
    const header = signer.sign(identity);
    expect(signer.read(header)).toEqual(identity);
    expect(signer.read(header)).toEqual(identity);
  });

  it.each([
    ['nothing', undefined],
    ['empty', ''],
    ['no signature', Buffer.from('{"id":{},"exp":9999999999}').toString('base64url')],
    ['another installation’s', new IdentitySigner(randomBytes(32)).sign(identity)],
    ['an expired one', signer.sign(identity, -1)],
  ])('refuses %s', (_name, header) => {
    expect(signer.read(header)).toBeNull();
  });

  it('signs once for who calls again, but not for anybody else, and anew before the header ends', () => {
    const first = signer.signOften(identity);
    expect(signer.signOften({ ...identity })).toBe(first);
    expect(signer.read(signer.signOften({ ...identity, account_id: 'other' }))).toMatchObject({
      account_id: 'other',
    });
    const { now } = Date;
    Date.now = () => now() + 16_000;
    try {
      const later = signer.signOften(identity);
      expect(later).not.toBe(first);
      expect([signer.read(first), signer.read(later)]).toEqual([identity, identity]);
    } finally {
      Date.now = now;
    }
  });

  it('refuses a changed payload', () => {
    const [payload, mac] = signer.sign(identity).split('.') as [string, string];
    const changed = Buffer.from(payload, 'base64url').toString().replace('compute', 'gateway');
    expect(signer.read(`${Buffer.from(changed).toString('base64url')}.${mac}`)).toBeNull();
  });
});
