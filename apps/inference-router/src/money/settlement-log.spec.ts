import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SliceSettlement } from '@nebo/contracts';
import { createMetrics } from '@nebo/telemetry';
import { pino } from 'pino';
import { FailingDisk } from '../../test/failing-disk.js';
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
    const log = open(400);
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
