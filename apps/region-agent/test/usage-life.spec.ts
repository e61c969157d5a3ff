import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type LifeUsage, type UsageReport, type UsageTaken } from '@nebo/contracts';
import { Superseded } from '../src/control/control-plane.js';
import { advance, finish, type LifeRecord, newLife } from '../src/usage/life.js';
import { UsageMeter } from '../src/usage/meter.js';
import { usageSettings } from '../src/usage/settings.js';
import { eventually, later, testLog } from './agent-kit.js';

const hour = 3_600_000;
const ten = Date.parse('2026-11-21T10:00:00Z');
const of = { id: 'life', kind: 'run', owner: 'run', real: true, counted: true, vcpu: 1 } as const;
const told = (life: LifeRecord) =>
  life.buckets.map(({ start, running_ms, cpu_us, measured, final }) => [
    new Date(start).toISOString().slice(11, 16),
    running_ms,
    measured ? cpu_us : null,
    final,
  ]);

describe('the totals of a life', () => {
  it('are split at full hours of UTC', () => {
    const life = newLife(of, ten - 3_000);
    advance(life, hour, { to: ten + 1_000, ms: 4_000, reading: 4_000_000 });
    expect(told(life)).toEqual([
      ['09:00', 3_000, 3_000_000, true],
      ['10:00', 1_000, 1_000_000, false],
    ]);
    advance(life, hour, { to: ten + 2_000, ms: 1_000, reading: 4_500_000 });
    finish(life);
    expect(told(life)[1]).toEqual(['10:00', 2_000, 1_500_000, true]);
  });

  it('a clock that is set makes no time: forward leaves a gap, back adds to an hour before', () => {
    const life = newLife(of, ten);
    advance(life, hour, { to: ten + 5 * hour + 1_000, ms: 1_000, reading: 1_000 });
    expect(told(life)).toEqual([['15:00', 1_000, 1_000, false]]);
    advance(life, hour, { to: ten + 4 * hour + 2_000, ms: 2_000, reading: 2_000 });
    expect(told(life)).toEqual([
      ['15:00', 1_000, 1_000, false],
      ['14:00', 2_000, 1_000, false],
    ]);
  });

  it('an hour in which nobody could read the counter was not measured; the hours around it were', () => {
    const life = newLife(of, ten);
    advance(life, hour, { to: ten + hour / 2, ms: hour / 2, reading: 1_000 });
    advance(life, hour, { to: ten + hour, ms: hour / 2, reading: null });
    // The hour is over, but not known to its end.
    expect(told(life)).toEqual([['10:00', hour, 1_000, false]]);
    advance(life, hour, { to: ten + 2 * hour + hour / 2, ms: 1.5 * hour, reading: 5_000 });
    expect(told(life)).toEqual([
      ['10:00', hour, 2_000, true],
      ['11:00', hour, null, true],
      ['12:00', hour / 2, 1_000, false],
    ]);
  });

  it('where nothing counts, time alone is told', () => {
    const life = newLife({ ...of, counted: false }, ten);
    advance(life, hour, { to: ten + hour, ms: hour, reading: null });
    expect(told(life)).toEqual([['10:00', hour, null, true]]);
  });

  it('1,000 random lives: no microsecond and no millisecond is lost or counted twice', () => {
    for (let number = 0; number < 1_000; number += 1) {
      let at = ten + Math.floor(Math.random() * hour);
      const life = newLife(of, at);
      let [counter, ms] = [0, 0];
      for (let step = 0; step < 20; step += 1) {
        const passed = Math.floor(Math.random() * (Math.random() < 0.1 ? hour : 20_000));
        at += passed + (Math.random() < 0.1 ? Math.floor((Math.random() - 0.5) * 600_000) : 0);
        counter += Math.floor(Math.random() * passed * 1_000);
        ms += passed;
        advance(life, hour, {
          to: at,
          ms: passed,
          reading: step < 19 && Math.random() < 0.2 ? null : counter,
        });
      }
      finish(life);
      expect(life.buckets.reduce((sum, { running_ms }) => sum + running_ms, 0)).toBe(ms);
      expect(life.buckets.reduce((sum, { cpu_us }) => sum + cpu_us, 0)).toBe(counter);
      expect(life.buckets.every(({ start, final }) => start % hour === 0 && final)).toBe(true);
    }
  });
});

describe('the meter', () => {
  let home: string;
  const heard: LifeUsage[] = [];
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'nebo-usage-'));
    heard.splice(0);
  });
  afterEach(() => rm(home, { recursive: true, force: true }));

  const settings = { bucketMs: hour, sampleMs: 30, reportMs: 50 };
  const make = async (left: Record<string, number> = {}) => {
    const meter = new UsageMeter({ file: join(home, 'usage'), settings, log: testLog });
    await meter.recover((group) => Promise.resolve(left[group] ?? null));
    return meter;
  };
  const take = ({ items }: UsageReport): Promise<UsageTaken> => {
    heard.push(...items);
    return Promise.resolve({ taken: items.length, refused: [] });
  };
  const never = () => {
    throw new Error('not superseded');
  };
  const cpuOf = (life: string) => {
    const newest = new Map<string, LifeUsage>();
    for (const item of heard)
      if (item.life === life && item.seq > (newest.get(item.hour)?.seq ?? 0)) newest.set(item.hour, item);
    return [...newest.values()].reduce((sum, { cpu_us }) => sum + (cpu_us ?? 0), 0);
  };

  it('tells totals that rise, and the last one as final', async () => {
    const meter = await make();
    meter.follow(take, never);
    let counter = 0;
    const life = meter.begin(of, () => Promise.resolve((counter += 1_000)));
    await eventually(() => heard.filter(({ final }) => !final).length > 2);
    await life.end();
    await life.end();
    await eventually(() => heard.at(-1)?.final);
    const seen = heard.map(({ cpu_us }) => cpu_us!);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(cpuOf('life')).toBe(counter);
    await meter.stop(1_000);
  });

  it('killed: the next one reads the group that was left, tells what was not taken, and nothing twice', async () => {
    const first = await make();
    first.begin(of, () => Promise.resolve(5_000));
    first.begin({ ...of, id: 'lost' }, () => Promise.resolve(7_000));
    await first.sample();
    await later(20);
    // No word of its end. 3,000 us after the last reading is what the group says; the other group is gone with its host.
    const second = await make({ life: 8_000 });
    await second.stop(0);
    const third = await make({ life: 8_000 });
    third.follow(take, never);
    await eventually(() => heard.filter(({ final }) => final).length === 2);
    expect([cpuOf('life'), cpuOf('lost')]).toEqual([8_000, 7_000]);
    await third.stop(1_000);
    heard.splice(0);
    const fourth = await make({ life: 8_000 });
    fourth.follow(take, never);
    await later(100);
    expect(heard).toEqual([]);
    await fourth.stop(0);
  });

  it('a control plane that is away, loses answers or refuses: told again, or dropped', async () => {
    const meter = await make();
    let calls = 0;
    meter.follow(async (report) => {
      calls += 1;
      if (calls === 1) throw new Error('away');
      if (calls === 2) {
        await take(report);
        throw new Error('answer lost');
      }
      return {
        taken: 0,
        refused: report.items.map((_, index) => ({ index, code: 'unknown', message: 'no' })),
      };
    }, never);
    await meter.begin(of, () => Promise.resolve(1_000)).end();
    await eventually(() => calls === 3);
    await later(150);
    expect(calls).toBe(3);
    await meter.stop(1_000);
  });

  it('another agent has the region: nothing more is told', async () => {
    const meter = await make();
    let superseded = 0;
    meter.follow(
      () => Promise.reject(new Superseded()),
      () => superseded++,
    );
    await meter.begin(of, () => Promise.resolve(1_000)).end();
    await eventually(() => superseded === 1);
    await meter.stop(0);
    expect(superseded).toBe(1);
  });

  it.each(['0', '7', '7200', 'x', '1.5'])('NEBO_USAGE_BUCKET=%s is refused', (text) => {
    expect(() => usageSettings({ NEBO_USAGE_BUCKET: text })).toThrow('NEBO_USAGE_BUCKET');
    expect(usageSettings({}).bucketMs).toBe(hour);
    expect(usageSettings({ NEBO_USAGE_BUCKET: '20' })).toMatchObject({ bucketMs: 20_000, sampleMs: 4_000 });
  });
});
