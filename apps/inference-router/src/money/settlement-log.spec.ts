import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SliceSettlement } from '@nebo/contracts';
import { createMetrics } from '@nebo/telemetry';
import { pino } from 'pino';
import { FailingDisk } from '../../test/failing-disk.js';
import { until } from '../../test/harness.js';
import { FolderDisk, type LogDisk } from './log-disk.js';
import { MoneyMetrics } from './money-metrics.js';
import { lineOf } from './settlement-line.js';
import { SettlementLog } from './settlement-log.js';

const settlement = (id: string): SliceSettlement => ({
  operation_id: id,
  account_id: 'a',
  key_id: 'k',
  slice_id: 's',
  month: '2026-11',
  amount: '12345678901',
  description: 'inference glm-5.3 «ё»',
  prices: [{ id: 'model.glm-5.3.input', version: 1 }],
  usage: { kind: 'inference', input_tokens: 1 },
  at: '2026-11-21T12:00:00.000Z',
});
const ids = Array.from({ length: 5 }, (_, index) => `op-${index}`);

describe('the settlement log', () => {
  let folder: string;
  const loud: object[] = [];
  const logger = pino({ level: 'warn' }, { write: (line: string) => loud.push(JSON.parse(line) as object) });
  const metrics = new MoneyMetrics(createMetrics('test'));
  const logs: SettlementLog[] = [];
  const opened = (log: SettlementLog) => (logs.push(log), log);
  const open = (size?: number, disk: LogDisk = new FolderDisk(folder)) =>
    opened(new SettlementLog(disk, logger, metrics, size));
  const segments = () => readdirSync(folder).filter((name) => name.startsWith('settlements-'));
  const replayed = async (log = open()) => (await log.replay()).map((one) => one.settlement.operation_id);
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'nebo-log-'));
    loud.length = 0;
  });
  afterEach(async () => {
    for (const log of logs.splice(0)) await log.close();
    rmSync(folder, { recursive: true, force: true });
  });

  it('keeps what was appended, in order, for the next process', async () => {
    const log = open();
    await log.replay();
    await Promise.all(ids.map((id) => log.append(settlement(id))));
    const found = await open().replay();
    expect(found.map((one) => one.settlement)).toEqual(ids.map(settlement));
  });

  it('writes all that wait with one write', async () => {
    const disk = new FailingDisk(new FolderDisk(folder));
    const log = open(undefined, disk);
    await Promise.all(ids.map((id) => log.append(settlement(id))));
    expect(disk.writes).toBe(1);
    // What comes while a write runs is the next one.
    const first = log.append(settlement('a'));
    await new Promise(setImmediate);
    await Promise.all([first, log.append(settlement('b')), log.append(settlement('c'))]);
    expect(disk.writes).toBeLessThanOrEqual(3);
  });

  it('removes a segment when all of it is acknowledged, not before', async () => {
    const log = open(1_000);
    const written = await Promise.all(ids.map((id) => log.append(settlement(id))));
    const more = await log.append(settlement('more'));
    expect(segments()).toHaveLength(2);
    for (const segment of written.slice(1)) await log.acknowledged(segment);
    expect(segments()).toHaveLength(2);
    await log.acknowledged(written[0]!);
    expect(segments()).toEqual([more.name]);
    await log.acknowledged(more);
    await log.close();
    expect(segments()).toEqual([]);
  });

  it('never writes into a segment of another life, and never reuses its name', async () => {
    const former = open();
    await former.append(settlement('old'));
    const log = open();
    const [left] = await log.replay();
    await log.append(settlement('new'));
    expect(segments()).toHaveLength(2);
    await log.acknowledged(left!.segment);
    expect(segments()).toHaveLength(1);
    expect(await replayed()).toEqual(['new']);
  });

  it.each([1, 30, 200])(
    'cuts a torn last line off (%i bytes of it are there) and keeps the others',
    async (size) => {
      const text = ids.map((id) => lineOf(settlement(id))).join('');
      const file = join(folder, 'settlements-000000000007.log');
      writeFileSync(file, text + lineOf(settlement('torn')).slice(0, size));
      const log = open();
      expect(await replayed(log)).toEqual(ids);
      expect(loud).toMatchObject([{ level: 40, bytes: expect.any(Number) }]);
      expect((await log.append(settlement('next'))).name).toBe('settlements-000000000008.log');
    },
  );

  it('reports a damaged line in the middle, loses no other, and keeps the file for the operator', async () => {
    const lines = ids.map((id) => lineOf(settlement(id)));
    lines[2] = lines[2]!.replace('12345678901', '92345678901');
    const name = 'settlements-000000000001.log';
    writeFileSync(join(folder, name), lines.join(''));
    const log = open();
    const found = await log.replay();
    expect(found.map((one) => one.settlement.operation_id)).toEqual(['op-0', 'op-1', 'op-3', 'op-4']);
    expect(loud).toMatchObject([{ level: 50, segment: name, lines: [3] }]);
    for (const { segment } of found) await log.acknowledged(segment);
    expect(readdirSync(folder)).toEqual([`${name}.corrupt`]);
    expect(readFileSync(join(folder, `${name}.corrupt`), 'utf8')).toBe(lines.join(''));
  });

  it('finds every settlement whose append was answered, wherever the file is cut', async () => {
    const text = ids.map((id) => lineOf(settlement(id))).join('');
    const file = join(folder, 'settlements-000000000001.log');
    const bytes = Buffer.from(text);
    for (let cut = 0; cut <= bytes.length; cut += 17) {
      writeFileSync(file, bytes.subarray(0, cut));
      const whole = bytes.subarray(0, cut).toString('latin1').split('\n').length - 1;
      expect(await replayed()).toEqual(ids.slice(0, whole));
      if (whole === 0) writeFileSync(file, '');
    }
  });

  it('has room on the disk for what comes, and makes the next segment while one is being filled', async () => {
    const log = open(800);
    const [first] = await Promise.all(ids.slice(0, 2).map((id) => log.append(settlement(id))));
    expect(statSync(join(folder, first!.name)).size).toBe(800);
    await until(() => segments().length === 2, 'the next one is there');
    expect((await log.append(settlement('fills'))).name).toBe(first!.name);
    expect((await log.append(settlement('next'))).name).toBe(segments()[1]);
    expect(await replayed()).toEqual(['op-0', 'op-1', 'fills', 'next']);
  });

  it('makes a segment when it needs one, where that failed before', async () => {
    const disk = new FailingDisk(new FolderDisk(folder));
    const log = open(700, disk);
    await log.append(settlement('first'));
    disk.failCreate = true;
    await log.append(settlement('past the middle'));
    await new Promise(setImmediate);
    disk.failCreate = false;
    await log.append(settlement('next'));
    expect(log.failure).toBeNull();
    expect(await replayed()).toEqual(['first', 'past the middle', 'next']);
  });

  it('leaves no file behind that was made and not used, after a stop or a crash', async () => {
    const log = open(1_000);
    const written = await Promise.all(ids.slice(0, 2).map((id) => log.append(settlement(id))));
    await until(() => segments().length === 2, 'the next one is there');
    // What a crash leaves: one of zeros, which the next life removes.
    writeFileSync(join(folder, 'settlements-000000000009.log'), Buffer.alloc(1_000));
    expect(await replayed()).toEqual(['op-0', 'op-1']);
    expect(segments()).not.toContain('settlements-000000000009.log');
    for (const segment of written) await log.acknowledged(segment);
    await log.close();
    expect(segments()).toEqual([]);
  });

  it.each(['its beginning', 'its middle', 'its end', 'all of it'])(
    'a power cut in the last write, which loses %s, is no damage: the lines that are whole count',
    async (lost) => {
      const log = open();
      await log.append(settlement('before'));
      const [segment] = await Promise.all(ids.map((id) => log.append(settlement(id))));
      const file = join(folder, segment!.name);
      const bytes = readFileSync(file);
      const begin = bytes.indexOf(10) + 1;
      const size = bytes.lastIndexOf(10) + 1 - begin;
      const [from, to] = { 'its beginning': [0, 0.5], 'its middle': [0.3, 0.7], 'its end': [0.5, 1] }[
        lost
      ] ?? [0, 1];
      bytes.fill(0, begin + Math.floor(size * from!), begin + Math.floor(size * to!));
      writeFileSync(file, bytes);
      const found = await replayed();
      expect(found[0]).toBe('before');
      expect(found.slice(1)).toEqual(
        { 'its beginning': ids.slice(3), 'its middle': [ids[0], ids[4]], 'its end': ids.slice(0, 2) }[lost] ??
          [],
      );
      expect(loud.every((line) => (line as { level: number }).level === 40)).toBe(true);
    },
  );

  it('zeros in a write that others followed are damage', async () => {
    const log = open();
    const { name } = await log.append(settlement('first'));
    await log.append(settlement('second'));
    const file = join(folder, name);
    const bytes = readFileSync(file);
    writeFileSync(file, bytes.fill(0, 50, 90));
    expect(await replayed()).toEqual(['second']);
    expect(loud).toMatchObject([{ level: 50, segment: name, lines: [1] }]);
  });

  it('a line of the last write that is there and wrong is damage too', async () => {
    const log = open();
    const { name } = await log.append(settlement('first'));
    await Promise.all(ids.map((id) => log.append(settlement(id))));
    const file = join(folder, name);
    const bytes = readFileSync(file);
    bytes[bytes.indexOf('12345678901', bytes.indexOf('op-4'))] = '9'.charCodeAt(0);
    writeFileSync(file, bytes);
    expect(await replayed()).toEqual(['first', ...ids.slice(0, 4)]);
    expect(loud).toMatchObject([{ level: 50, segment: name, lines: [6] }]);
  });

  it('a full disk refuses only what it cannot take, and leaves no half line', async () => {
    const disk = new FailingDisk(new FolderDisk(folder));
    const log = open(undefined, disk);
    await log.append(settlement('before'));
    disk.room = 100;
    await expect(log.append(settlement('lost'))).rejects.toMatchObject({ code: 'ENOSPC' });
    expect(log.failure).toMatchObject({ code: 'ENOSPC' });
    disk.room = Infinity;
    await log.append(settlement('after'));
    expect(log.failure).toBeNull();
    expect(await replayed()).toEqual(['before', 'after']);
    expect(loud.every((line) => (line as { bytes?: number }).bytes === undefined)).toBe(true);
  });

  it('a failed sync is a failed append: nothing of it stands in the log', async () => {
    const disk = new FailingDisk(new FolderDisk(folder));
    const log = open(undefined, disk);
    disk.failSync = true;
    await expect(log.append(settlement('lost'))).rejects.toMatchObject({ code: 'EIO' });
    disk.failSync = false;
    expect(await replayed()).toEqual([]);
  });

  it('a folder that takes no new file fails the append, not the process', async () => {
    const disk = new FailingDisk(new FolderDisk(folder));
    disk.failCreate = true;
    const log = open(undefined, disk);
    await expect(log.append(settlement('lost'))).rejects.toMatchObject({ code: 'EACCES' });
    disk.failCreate = false;
    await log.append(settlement('kept'));
    expect(await replayed()).toEqual(['kept']);
  });
});
