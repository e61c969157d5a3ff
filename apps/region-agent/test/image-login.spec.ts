import { type RegistryLogin } from '@nebo/contracts';
import { RegistryPart } from '@nebo/test-kit';
import { imageOf, PullBench, type PullHow } from './pull-bench.js';

describe('images of a registry that knows its users', () => {
  const [username, password] = ['ann', 'sesame: öffne dich'];
  let shut: RegistryPart;
  let open: RegistryPart;
  const bench = new PullBench(() => [shut.address, open.address]);
  const pull = bench.pull.bind(bench);
  const refused = bench.refused.bind(bench);
  beforeAll(async () => {
    shut = await RegistryPart.start({ login: `${username}:${password}` });
    open = await RegistryPart.start({ wantsToken: false });
  });
  afterAll(() => Promise.all([shut.stop(), open.stop()]));
  afterEach(() => bench.end());
  beforeEach(async () => {
    await bench.begin();
    shut.asked.length = 0;
    shut.authorizations.length = 0;
    Object.assign(shut.faults, { basic: false, redirectTo: null, next: [] });
  });
  const basic = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  const how = (login: Partial<RegistryLogin> = {}): PullHow => ({
    login: { host: shut.address, username, password, ...login },
  });

  it('by a token, which only the place that gives them is told the login for', async () => {
    const image = imageOf('private');
    const { document } = await pull(shut.push('ann/private', 'v1', image), how());
    expect(document.digest).toBe(image.digest);
    expect(shut.asked.slice(0, 3)).toEqual([
      'GET /v2/ann/private/manifests/v1',
      'GET /token',
      'GET /v2/ann/private/manifests/v1',
    ]);
    expect(shut.authorizations.map((value) => value === basic)).toEqual(
      shut.asked.map((line) => line === 'GET /token'),
    );
  });

  it('by the login at each request, but not where its blobs lie elsewhere', async () => {
    shut.faults.basic = true;
    const image = imageOf('elsewhere');
    open.push('ann/elsewhere', 'v1', image);
    shut.faults.redirectTo = open.url;
    open.authorizations.length = 0;
    const { document } = await pull(shut.push('ann/elsewhere', 'v1', image), how());
    expect(document.digest).toBe(image.digest);
    expect(shut.asked).not.toContain('GET /token');
    expect(new Set(shut.authorizations)).toEqual(new Set([undefined, basic]));
    expect(open.authorizations.length).toBeGreaterThan(0);
    expect(new Set(open.authorizations)).toEqual(new Set([undefined]));
  });

  it('a wrong login, one that is not complete, none: the sentence says what to do, and never the password', async () => {
    const reference = shut.push('ann/shut', 'v1', imageOf('shut'));
    const wrong = 'open sesame';
    await refused(
      pull(reference, how({ password: wrong })),
      /to the login: .* gives no token for it \(401\)/,
    );
    shut.faults.basic = true;
    shut.faults.next = [{ status: 403, body: JSON.stringify({ errors: [{ message: `not ${password}` }] }) }];
    const echo = pull(reference, how());
    await refused(echo, /says "not \*{8}" \(403\)\. Either it is not there or the login/);
    // As it was sent, and where a sentence is cut.
    for (const message of [`no ${basic}`, `${'x'.repeat(190)} ${password}`]) {
      shut.faults.next = [{ status: 403, body: JSON.stringify({ errors: [{ message }] }) }];
      const said = await pull(reference, how()).catch((error: Error) => error.message);
      expect(said).toMatch(/says "(?:no Basic|x{190})/);
      expect(said).not.toContain(password.slice(0, 6));
      expect(said).not.toContain(Buffer.from(password).toString('base64').slice(4, 16));
      expect(said).not.toContain(basic.slice(-12));
    }
    await refused(
      pull(reference, how({ password: wrong })),
      /"authentication required" \(401\)\. .*the login/,
    );
    await refused(
      pull(reference, how({ username: null, password: null })),
      /not complete: NEBO_REGISTRY_USERNAME and NEBO_REGISTRY_PASSWORD are missing/,
    );
    await refused(pull(reference, { ...how(), login: null }), /wants a user name and password/);
    await expect(pull(reference, how({ password: wrong }))).rejects.not.toThrow(wrong);
  });

  it('is told to no other registry', async () => {
    const image = imageOf('public');
    open.authorizations.length = 0;
    const { document } = await pull(open.push('ann/public', 'v1', image), how());
    expect(document.digest).toBe(image.digest);
    expect(open.authorizations).not.toContain(basic);
    expect(bench.lines[0]).toBe(
      `the app's login is for ${shut.address}, and the image is of ${open.address}: it is pulled without`,
    );
  });
});
