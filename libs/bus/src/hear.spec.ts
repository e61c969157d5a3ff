import { type Sql } from '@nebo/persistence';
import { pause, until } from '../test/bus.contract.js';
import { testSchema, type TestSchema } from '../test/database.js';
import { EmbeddedBus } from './embedded/embedded-bus.js';
import { defineEvent, isEnvelope, matches, type Envelope } from './envelope.js';
import { hear, on, onAll } from './hear.js';

const attached = defineEvent<{ port: string }>('nebo.networking.interface.attached.v1');
const revoked = defineEvent<{ key: string }>('nebo.identity-billing.key.revoked.v1');

describe('hear', () => {
  let schema: TestSchema;
  beforeAll(async () => {
    schema = await testSchema('hear_test', 'create table effect (event_id uuid not null)');
  }, 60_000);
  afterAll(() => schema.close());

  it('runs functions, classes and hints of one screen, with transaction and trace', async () => {
    const seen: string[] = [];
    class Interfaces {
      constructor(private readonly log: string[]) {}
      async handle(tx: Sql, event: Envelope<{ port: string }>): Promise<void> {
        const [row] = await tx.query<{ account: string }>("select current_setting('app.account') as account");
        this.log.push(`class ${event.data.port} as ${row!.account}`);
      }
    }
    const hears = [
      on(attached, 'test-function', async (_tx, event) => void seen.push(`function ${event.data.port}`)),
      on(attached, 'test-class', Interfaces),
      onAll(revoked, (event) => void seen.push(`hint ${event.data.key}`)),
    ];
    const around: string[] = [];
    const bus = new EmbeddedBus();
    const hearing = await hear(bus, schema.db, hears, {
      resolve: () => new Interfaces(seen),
      around: async (event, consumer, run) => {
        around.push(`${consumer} ${event.trace}`);
        await run();
      },
    });
    await bus.publish([attached({ port: 'p1' }, { trace: 't1' }), revoked({ key: 'k1' })]);
    await until('all three', () => seen.length === 3);
    expect(seen.sort()).toEqual(['class p1 as system', 'function p1', 'hint k1']);
    expect(around.sort()).toEqual(['all null', 'test-class t1', 'test-function t1']);
    await hearing.close();
    await bus.publish([attached({ port: 'p2' })]);
    await pause(50);
    expect(seen).toHaveLength(3);
    await bus.close();
  });

  it('prunes the inbox', async () => {
    await schema.db.query(
      "insert into inbox (consumer, event_id, received_at) values ('x', gen_random_uuid(), now() - interval '8 days')",
    );
    const hearing = await hear(new EmbeddedBus(), schema.db, [], { pruneEveryMs: 20 });
    for (
      let n = 0;
      n < 100 && (await schema.db.query("select 1 from inbox where consumer = 'x'")).length > 0;
      n += 1
    ) {
      await pause(20);
    }
    expect(await schema.db.query("select 1 from inbox where consumer = 'x'")).toEqual([]);
    await hearing.close();
  });

  it('a class without resolve is refused', async () => {
    class Lost {
      async handle(): Promise<void> {}
    }
    await expect(hear(new EmbeddedBus(), schema.db, [on(attached, 'test-lost', Lost)])).rejects.toThrow(
      /resolve/,
    );
  });
});

describe('envelope', () => {
  it('is made by its definition', () => {
    const event = attached({ port: 'p' }, { account: 'a', time: new Date(0) });
    expect(event).toMatchObject({
      type: attached.subject,
      time: '1970-01-01T00:00:00.000Z',
      account: 'a',
      trace: null,
    });
    expect(isEnvelope(event)).toBe(true);
  });

  it.each([
    'nebo.compute.vm.wanted',
    'nebo.compute.vm.v1',
    'nebo.compute.vm.*.v1',
    'nebo.Compute.vm.wanted.v1',
    '',
  ])('refuses the subject "%s"', (subject) => expect(() => defineEvent(subject)).toThrow(/unknown subject/));

  it.each([
    ['nebo.>', 'nebo.a.b.c.v1', true],
    ['nebo.a.*.c.v1', 'nebo.a.b.c.v1', true],
    ['nebo.a.*', 'nebo.a.b.c.v1', false],
    ['nebo.a.b.c.v1.>', 'nebo.a.b.c.v1', false],
    ['nebo.a.b.c.v1', 'nebo.a.b.c.v1', true],
    ['nebo.a.b.c.v2', 'nebo.a.b.c.v1', false],
  ])('%s against %s: %s', (pattern, subject, expected) => expect(matches(pattern, subject)).toBe(expected));

  it.each([null, 5, {}, { ...attached({ port: 'p' }), id: 'x' }, { ...attached({ port: 'p' }), account: 5 }])(
    'does not believe %j',
    (value) => expect(isEnvelope(value)).toBe(false),
  );
});
