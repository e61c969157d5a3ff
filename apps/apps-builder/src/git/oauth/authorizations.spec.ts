import { randomUUID } from 'node:crypto';
import { keyChanged } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { eventually } from '../../../test/harness.js';
import { OAuthBench } from '../../../test/oauth-bench.js';

describe('git hosts by their OAuth app', () => {
  let oauth: OAuthBench;
  const api: OAuthBench['git']['bench']['api'] = (...of) => oauth.git.bench.api(...of);
  const query = (address: string) => Object.fromEntries(new URL(address).searchParams);
  /** Another value of a parameter in an address. */
  const having = (address: string, more: Record<string, string>) => {
    const url = new URL(address);
    for (const [name, value] of Object.entries(more)) url.searchParams.set(name, value);
    return url.href;
  };

  beforeAll(async () => {
    oauth = await OAuthBench.start('gitea');
    await oauth.host.createRepository('ann/site');
    await oauth.host.push('ann/site', { files: { 'index.html': '1' } });
  });
  afterAll(async () => {
    await oauth?.close();
    await (await sharedPostgres()).stop();
  });

  it('201 gives an address with a state and a proof; 200 connects, and shows neither token nor code', async () => {
    const { status, body: made } = await oauth.begin({ name: 'Work' });
    expect([status, made]).toEqual([
      201,
      {
        id: expect.any(String),
        provider: 'gitea',
        base_url: oauth.host.url,
        status: 'pending',
        status_reason: null,
        authorize_url: expect.stringContaining(`${oauth.host.url}/login/oauth/authorize?`),
        connection_id: null,
        created_at: expect.any(String),
        expires_at: expect.any(String),
      },
    ]);
    expect(Date.parse(made.expires_at) - Date.parse(made.created_at)).toBe(600_000);
    expect(query(made.authorize_url)).toEqual({
      response_type: 'code',
      client_id: 'nebo-client',
      redirect_uri: `${oauth.git.publicUrl}/hooks/git/oauth/callback`,
      state: expect.stringMatching(new RegExp(`^${made.id}\\.[\\w-]{43}$`)),
      scope: 'read:user write:repository',
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
    });
    expect((await oauth.look(made.id)).authorize_url).toBeNull();
    const page = await oauth.git.back(await oauth.agree(made.authorize_url));
    expect(page).toMatchObject({ status: 200, headers: { 'content-type': 'text/html; charset=utf-8' } });
    expect(page.headers['content-security-policy']).toContain("default-src 'none'");
    expect(page.headers).toMatchObject({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' });
    expect(page.text).toContain('ann');
    expect(page.text).not.toMatch(/oauth-\d|refresh-\d|code-\d/);
    const { connection_id, status: ended } = await oauth.look(made.id);
    expect(ended).toBe('connected');
    const connection = await api('GET', `git/connections/${connection_id}`);
    expect(connection.body).toMatchObject({ auth: 'oauth', login: 'ann', name: 'Work', status: 'active' });
    expect((await api('GET', `git/connections/${connection_id}/repositories`)).body.total).toBe(1);
    const [row] = await oauth.git.bench.sql<{ all: string }>(
      `select row_to_json(c)::text || row_to_json(a)::text || encode(c.token_sealed, 'escape') || encode(c.refresh_sealed, 'escape') as all
       from git_connection c join git_authorization a on a.connection_id = c.id where c.id = $1`,
      [connection_id],
    );
    expect(row!.all).not.toMatch(/oauth-\d|refresh-\d/);
  });

  it('422, 404 and 409 name what is wrong before anybody is sent anywhere', async () => {
    const said = async (more: Record<string, unknown>) => {
      const { status, body } = await oauth.begin(more);
      return [status, body.detail?.[0].loc.join('.') ?? body.error.code];
    };
    expect(await said({ provider: 'svn' })).toEqual([422, 'body.provider']);
    expect(await said({ base_url: null })).toEqual([422, 'body.base_url']);
    expect(await said({ base_url: 'nonsense' })).toEqual([422, 'body.base_url']);
    // What is published of its OAuth is not enough: a token it is.
    expect(await said({ provider: 'gitflic', base_url: null })).toEqual([422, 'body.provider']);
    expect(await said({ provider: 'github', base_url: null })).toEqual([409, 'oauth_not_configured']);
    expect(await said({ base_url: 'https://git.example.org' })).toEqual([409, 'oauth_not_configured']);
    expect(await said({ installation: true })).toEqual([409, 'oauth_not_configured']);
    expect(await said({ connection_id: randomUUID() })).toEqual([404, 'not_found']);
    const { error } = (await oauth.begin({ provider: 'github', base_url: null })).body;
    expect(error.message).toContain(`it has gitea at ${oauth.host.url}`);
    for (const id of [randomUUID(), 'x'])
      expect((await api('GET', `git/authorizations/${id}`)).status).toBe(404);
    const { id } = (await oauth.begin()).body;
    expect((await api('GET', `git/authorizations/${id}`, undefined, oauth.git.bench.stranger)).status).toBe(
      404,
    );
  });

  it('400 for a state that nobody was given, and nothing is asked of the host', async () => {
    const back = await oauth.agree((await oauth.begin()).body.authorize_url);
    const asked = oauth.host.oauth.asked.length;
    const state = query(back)['state']!;
    const [id, secret] = state.split('.') as [string, string];
    const other = (await oauth.begin()).body.id as string;
    const wrong = [
      '',
      'x',
      id,
      `${id}.`,
      `${id}.${'A'.repeat(43)}`,
      `${other}.${secret}`,
      `${randomUUID()}.${secret}`,
      `${state}.x`,
    ];
    for (const text of wrong) {
      const page = await oauth.git.back(having(back, { state: text }));
      expect([text, page.status]).toEqual([text, 400]);
    }
    expect((await oauth.git.back('/?code=1')).status).toBe(400);
    expect((await oauth.git.back(`${back}&state=${state}`)).status).toBe(400);
    expect(oauth.host.oauth.asked.length).toBe(asked);
    // None of them has used the right one up.
    expect((await oauth.git.back(back)).status).toBe(200);
  });

  it('410 for a state that was used, even by two at once, and for one after its ten minutes', async () => {
    const back = await oauth.agree((await oauth.begin()).body.authorize_url);
    const pages = await Promise.all([oauth.git.back(back), oauth.git.back(back), oauth.git.back(back)]);
    expect(pages.map(({ status }) => status).sort()).toEqual([200, 410, 410]);
    expect((await oauth.git.back(back)).status).toBe(410);
    const late = (await oauth.begin()).body;
    const lateBack = await oauth.agree(late.authorize_url);
    await oauth.git.bench.sql('update git_authorization set expires_at = now() where id = $1', [late.id]);
    expect((await oauth.look(late.id)).status).toBe('expired');
    expect((await oauth.git.back(lateBack)).status).toBe(410);
  });

  it('403 when the person says no or the key was changed meanwhile; the authorization says why', async () => {
    const { body: refused } = await oauth.begin();
    oauth.host.oauth.denies = true;
    const back = await oauth.agree(refused.authorize_url);
    oauth.host.oauth.denies = false;
    const page = await oauth.git.back(back);
    expect([page.status, page.text]).toEqual([403, expect.stringContaining('You did not allow it at gitea')]);
    expect(page.text).not.toContain('<b>person');
    expect(await oauth.look(refused.id)).toMatchObject({
      status: 'failed',
      status_reason: 'you did not allow it at gitea',
    });
    const odd = (await oauth.begin()).body;
    const oddPage = await oauth.git.back(
      having(await oauth.agree(odd.authorize_url), { error: '<script>alert(1)</script>' }),
    );
    expect([oddPage.status, oddPage.text.includes('<script')]).toEqual([403, false]);

    const late = (await oauth.begin()).body;
    const lateBack = await oauth.agree(late.authorize_url);
    const data = { key_id: oauth.git.bench.key.key_id, hash: 'x', state: 'revoked' as const };
    await oauth.git.bench.nebo.runtime.bus.publish([keyChanged(data, { account: oauth.git.bench.account })]);
    await eventually('called off', async () => (await oauth.look(late.id)).status === 'failed');
    expect((await oauth.git.back(lateBack)).status).toBe(403);
  });

  it('403 for a code that is over or another’s, 502 while the host is away or does not know the app; nothing is made', async () => {
    const before = (await api('GET', 'git/connections')).body.total;
    const attempt = async (change: (back: string) => string = (back) => back) => {
      const { id, authorize_url } = (await oauth.begin()).body;
      const page = await oauth.git.back(change(await oauth.agree(authorize_url)));
      return [page.status, (await oauth.look(id)).status_reason] as const;
    };
    expect(await attempt((back) => having(back, { code: 'code-none' }))).toEqual([
      403,
      expect.stringContaining('over'),
    ]);
    // The proof belongs to another authorization: a code that was caught is worth nothing.
    const caught = query(await oauth.agree((await oauth.begin()).body.authorize_url))['code']!;
    expect((await attempt((back) => having(back, { code: caught })))[0]).toBe(403);
    expect(await attempt((back) => having(back, { code: '' }))).toEqual([
      400,
      expect.stringContaining('no code'),
    ]);
    oauth.host.oauth.trouble = 503;
    expect(await attempt()).toEqual([502, expect.stringContaining('in trouble')]);
    oauth.host.oauth.trouble = null;
    oauth.host.oauth.losesAnswers = 1;
    expect((await attempt())[0]).toBe(502);
    (oauth.host.oauth as { clientSecret: string }).clientSecret = 'changed';
    expect(await attempt()).toEqual([502, expect.stringContaining('its operator has to look')]);
    (oauth.host.oauth as { clientSecret: string }).clientSecret = 'client-secret-of-nebo';
    expect((await api('GET', 'git/connections')).body.total).toBe(before);
  });

  it('an installation that died over a code says so, and the state stays used', async () => {
    const { id, authorize_url } = (await oauth.begin()).body;
    const back = await oauth.agree(authorize_url);
    await oauth.git.bench.sql(
      "update git_authorization set status = 'trading', used_at = now() - interval '2 minutes' where id = $1",
      [id],
    );
    expect(await oauth.look(id)).toMatchObject({
      status: 'failed',
      status_reason: expect.stringContaining('interrupted'),
    });
    expect((await oauth.git.back(back)).status).toBe(410);
  });

  it('reconnects the connection that is there: the same id, by token or OAuth; another person is refused', async () => {
    const first = await oauth.connect();
    const byToken = await oauth.git.connect();
    expect([byToken.id, byToken.auth]).toEqual([first.id, 'token']);
    expect((await oauth.connect({ connection_id: first.id })).id).toBe(first.id);
    await oauth.git.bench.sql("update git_connection set login = 'bob' where id = $1", [first.id]);
    const { id, authorize_url } = (await oauth.begin({ connection_id: first.id })).body;
    const page = await oauth.git.back(await oauth.agree(authorize_url));
    expect([page.status, page.text]).toEqual([403, expect.stringContaining('sign in there as bob')]);
    expect((await oauth.look(id)).status).toBe('failed');
    const other = await oauth.begin({ provider: 'github', base_url: null, connection_id: first.id });
    expect(other.status).toBe(409);
  });

  it('a repeated Idempotency-Key answers the same address', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const body = { provider: 'gitea', base_url: oauth.host.url };
    const first = await api('POST', 'git/authorizations', body, oauth.git.bench.key, headers);
    const second = await api('POST', 'git/authorizations', body, oauth.git.bench.key, headers);
    expect([second.status, second.body]).toEqual([201, first.body]);
  });
});
