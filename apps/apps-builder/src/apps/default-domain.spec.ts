import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench } from '../../test/harness.js';

describe('apps', () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.start();
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  describe('default domain', () => {
    const hostOf = async (name: string) => {
      const app = await bench.app({ name }, randomUUID());
      const { body } = await bench.api('GET', `apps/${app.id}/domains`);
      expect(body.data).toHaveLength(1);
      expect(body.data[0]).toMatchObject({
        app_id: app.id,
        url: expect.stringMatching(/^https:\/\/[a-z0-9-]+\.apps\.localhost:8443$/),
        is_default: true,
        type: 'current',
        status: 'active',
        dns_configured: true,
      });
      return { host: body.data[0].domain as string, id: app.id as string };
    };

    it('is there right after creation: the name in a–z, 0–9 and hyphen, Cyrillic transliterated', async () => {
      expect((await hostOf('Моя Щедрая лавка №5')).host).toBe('moya-shchedraya-lavka-no5.apps.localhost');
      expect((await hostOf('Café_Crème!')).host).toBe('cafe-creme.apps.localhost');
      expect((await hostOf('x'.repeat(60))).host).toBe(`${'x'.repeat(40)}.apps.localhost`);
    });

    it('gets four characters of the id when the name is taken or reserved', async () => {
      const name = `taken ${randomUUID()}`;
      await hostOf(name);
      const second = await hostOf(name);
      expect(second.host).toMatch(new RegExp(`-${second.id.slice(0, 4)}\\.apps\\.localhost$`));
      for (const reserved of ['www', 'API', 'Nebo'])
        expect((await hostOf(reserved)).host).toMatch(/-[0-9a-f]{4}\.apps\.localhost$/);
      expect((await hostOf('日本')).host).toMatch(/^app/);
    });

    it('stays after a rename, and is free after the deletion', async () => {
      const name = `rename ${randomUUID()}`;
      const { host, id } = await hostOf(name);
      await bench.api('PATCH', `apps/${id}`, { name: 'new' });
      expect((await bench.api('GET', `apps/${id}/domains`)).body.data[0].domain).toBe(host);
      await bench.api('DELETE', `apps/${id}`);
      expect((await hostOf(name)).host).toBe(host);
    });
  });
});
