import { randomUUID } from 'node:crypto';
import { hookTypeHeader } from '@nebo/contracts';
import { FakeInstallation, send } from '../../test/fake-installation.js';

describe.each([
  ['in one process', false],
  ['across processes', true],
])('the door of git hosts, services %s', (_name, remote) => {
  let nebo: FakeInstallation;
  const id = randomUUID();

  beforeAll(async () => {
    nebo = await new FakeInstallation().start({}, remote);
  });
  afterAll(() => nebo.stop());
  const post = (path: string, more: Parameters<typeof send>[1] = {}) =>
    send(`${nebo.api}${path}`, { method: 'POST', ...more });

  it('hands a delivery on without a key: its bytes and headers as they are, its media type beside them', async () => {
    const body = '{"a": "\\u00e4", "b":\n1}';
    const type = 'application/json; charset=utf-8';
    const headers = { 'content-type': type, 'x-gitea-signature': 'abc', authorization: 'Basic x' };
    const answer = await post(`/hooks/git/${id}?x=1`, { body, headers });
    expect(answer).toMatchObject({
      status: 200,
      body: {
        service: 'apps-builder',
        identity: { kind: 'service', service: 'api-gateway', account_id: null },
      },
    });
    const seen = nebo.seen.at(-1)!;
    expect(seen).toMatchObject({ method: 'POST', url: `/internal/v1/hooks/git/${id}`, body });
    expect(seen.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      [hookTypeHeader]: type,
      'x-gitea-signature': 'abc',
    });
  });

  it('believes no internal header of the host', async () => {
    await post(`/hooks/git/${id}`, {
      body: '{}',
      headers: { [hookTypeHeader]: 'x', 'x-nebo-identity': 'x' },
    });
    const { headers } = nebo.seen.at(-1)!;
    expect(headers[hookTypeHeader]).not.toBe('x');
    expect(headers['x-nebo-identity']).not.toBe('x');
  });

  it('hands people on whom a git host sends back, with what stands in the address; 405 for another method', async () => {
    const answer = await send(`${nebo.api}/hooks/git/oauth/callback?code=a%20b&state=c`, { method: 'GET' });
    expect(answer).toMatchObject({
      status: 200,
      body: {
        service: 'apps-builder',
        identity: { kind: 'service', service: 'api-gateway', account_id: null },
      },
    });
    expect(nebo.seen.at(-1)).toMatchObject({
      method: 'GET',
      url: '/internal/v1/git/oauth/callback?code=a%20b&state=c',
    });
    const before = nebo.seen.length;
    expect(await post('/hooks/git/oauth/callback')).toMatchObject({ status: 405, headers: { allow: 'GET' } });
    expect((await send(`${nebo.api}/hooks/git/oauth`, { method: 'GET' })).status).toBe(404);
    expect(nebo.seen.length).toBe(before);
  });

  it('405 for another method, 404 for what names no connection; nothing goes on', async () => {
    const before = nebo.seen.length;
    const answer = await send(`${nebo.api}/hooks/git/${id}`, { method: 'GET' });
    expect(answer).toMatchObject({ status: 405, headers: { allow: 'POST' } });
    for (const path of [
      '/hooks/git/',
      '/hooks/git/x',
      `/hooks/git/${id}/x`,
      `/hooks/git/${id}%2f..`,
      '/hooks/svn/x',
    ])
      expect([path, (await post(path)).status]).toEqual([path, 404]);
    expect(nebo.seen.length).toBe(before);
  });
});
