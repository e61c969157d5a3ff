import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type LogBatch } from '@nebo/contracts';
import { silentLog } from '../src/agent-log.js';
import { LineSplitter } from '../src/log/lines.js';
import { LogShipper } from '../src/log/log-shipper.js';
import { mask, Redactor } from '../src/log/redact.js';
import { secretForms } from '../src/log/secret-forms.js';
import { envFile } from '../src/drivers/local/bwrap.js';
import { parseDrivers, probeDrivers } from '../src/drivers/probe.js';
import { slotAt, Slots } from '../src/drivers/local/slots.js';

function split(chunks: (string | Buffer)[], secrets: string[] = [], cap?: number): string[] {
  const lines: string[] = [];
  const splitter = new LineSplitter(new Redactor(secrets), (line) => lines.push(line), cap);
  for (const chunk of chunks) splitter.push(Buffer.from(chunk));
  splitter.end();
  return lines;
}

describe('LineSplitter', () => {
  it.each([
    ['every kind of line end', ['a\nb\r\nc\rd'], ['a', 'b', 'c', 'd']],
    ['a return and a feed in two chunks', ['a\r', '\nb\n'], ['a', 'b']],
    ['empty lines', ['a\n\n\r\nb'], ['a', '', '', 'b']],
    ['a character in two chunks', [Buffer.from('я').subarray(0, 1), Buffer.from('я').subarray(1)], ['я']],
    ['colours, without NUL', ['\u001b[31mred\u001b[0m\0!\n'], ['\u001b[31mred\u001b[0m!']],
  ])('takes %s', (_, chunks, lines) => expect(split(chunks)).toEqual(lines));

  it('splits a long line, never inside a character or a secret', () => {
    const lines = split(
      [`${'x'.repeat(95)}SECRETVALUE${'y'.repeat(95)}😀${'z'.repeat(60)}`],
      ['SECRETVALUE'],
      100,
    );
    expect(lines.every((line) => line.length <= 102)).toBe(true);
    expect(lines.join('')).toBe(`${'x'.repeat(95)}${mask}${'y'.repeat(95)}😀${'z'.repeat(60)}`);
    expect(lines.join('')).not.toContain('SECRET');
  });

  it('masks secrets that come in pieces, at every place', () => {
    const text = `before hunter2-hunter2 after ${'p'.repeat(40)} hunter2-hunter2`;
    for (let at = 0; at < text.length; at++) {
      const seen = split([text.slice(0, at), text.slice(at)], ['hunter2-hunter2'], 20).join('');
      expect(seen).toBe(text.replaceAll('hunter2-hunter2', mask));
    }
  });

  it('masks secrets of several lines by line, the longest first, and leaves very short ones', () => {
    const key = '-----BEGIN KEY-----\nabcdef\nghijkl\n-----END KEY-----\n';
    expect(split([key], [key])).toEqual([mask, mask, mask, mask]);
    expect(split(['pass passphrase 1'], ['pass', 'passphrase', '1'])).toEqual([`${mask} ${mask} 1`]);
  });

  const odd = 'p@ss/w"ö\'rd+<&> 100%=~!';
  const key = `-----BEGIN KEY-----\n${'MIIEvQIBADANBg+kqhkiG9w0/BAQEFAASC\n'.repeat(12)}-----END KEY-----\n`;
  it.each([
    ['in JSON', JSON.stringify({ password: odd, more: 1 })],
    ['in JSON of ASCII', String.raw`{"p": "p@ss/w\"\u00f6'rd+<&> 100%=~!"}`],
    ['in JSON for pages', String.raw`{"p":"p@ss/w\"ö'rd+\u003c\u0026\u003e 100%=~!"}`],
    ['in JSON with escaped slashes', String.raw`{"p":"p@ss\/w\"\u00f6'rd+<&> 100%=~!"}`],
    ['in the user of an address', `https://me:${encodeURIComponent(odd)}@host/path`],
    ['percent-encoded in lower case', encodeURIComponent(odd).replace(/%../g, (code) => code.toLowerCase())],
    ['percent-encoded to the letter', 'p%40ss%2Fw%22%C3%B6%27rd%2B%3C%26%3E%20100%25%3D~%21'],
    ['as a path', 'p%40ss/w%22%C3%B6%27rd%2B%3C%26%3E%20100%25%3D~%21'],
    ['in a form', new URLSearchParams({ user: 'me', password: odd }).toString()],
    ['quoted for a shell', String.raw`+ login 'p@ss/w"ö'\''rd+<&> 100%=~!'`],
    ['in base64', `secret: ${Buffer.from(odd).toString('base64')}`],
    ['in base64 for addresses', Buffer.from(odd).toString('base64url')],
    ['in a Basic header', `authorization: Basic ${Buffer.from(`me:${odd}`).toString('base64')}`],
    ['in a Basic header of another length', `Basic ${Buffer.from(`you:${odd}`).toString('base64')}`],
    ['in base64 with a line end behind', Buffer.from(`${odd}\n`).toString('base64')],
    ['in hex', Buffer.from(odd).toString('hex')],
    ['in hex in capitals', Buffer.from(odd).toString('hex').toUpperCase()],
  ])('masks a secret %s', (_, text) => {
    const half = Math.floor(text.length / 2);
    const [line] = split([text.slice(0, half), text.slice(half)], [odd]);
    expect(line).toContain(mask);
    // Nothing of eight signs in a row is left of what stood there, beside what is no secret.
    const kept = `${line} me:you: authorization: Basic password secret: login host path more user {"password":"`;
    const [form] = secretForms(odd)
      .filter((one) => text.includes(one))
      .sort((a, b) => b.length - a.length);
    for (let at = 0; at + 8 <= form!.length; at++) expect(kept).not.toContain(form!.slice(at, at + 8));
  });

  it('masks a key of several lines in JSON, and in base64 as programs break it', () => {
    expect(split([JSON.stringify({ key, user: 'me' })], [key])).toEqual([`{"key":"${mask}","user":"me"}`]);
    for (const columns of [76, 64]) {
      const wrapped = Buffer.from(key)
        .toString('base64')
        .match(new RegExp(`.{1,${columns}}`, 'g'))!;
      const lines = split([wrapped.join('\n')], [key]);
      expect(lines.slice(0, -1).every((line) => line === mask)).toBe(true);
      expect(lines.at(-1)!.replace(mask, '').length).toBeLessThan(8);
    }
  });

  it('leaves nothing of two that overlap, and leaves alone what is no secret', () => {
    expect(split(['xabcdefghx'], ['abcdef', 'defgh'])).toEqual([`x${mask}x`]);
    const text = 'GET /index.html 200 in 12 ms; сто рублей; ' + 'lorem ipsum '.repeat(50);
    expect(split([text], [odd, key, 'hunter2-hunter2'])).toEqual([text]);
  });
});

describe('LogShipper', () => {
  let dir: string;
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'nebo-seq-'));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));
  const shipper = (sent: LogBatch[], more: { holdBytes?: number; send?: () => Promise<void> } = {}) => {
    const made = new LogShipper({
      dir,
      log: silentLog,
      batchMs: 5,
      send: more.send ?? (async (_, batch) => void sent.push(batch)),
      ...(more.holdBytes === undefined ? {} : { holdBytes: more.holdBytes }),
    });
    return made.start().then(() => made);
  };

  it('sends at most 200 lines at once, numbered from 0, then done', async () => {
    const sent: LogBatch[] = [];
    const all = await shipper(sent);
    const log = await all.open('s');
    for (let i = 0; i < 450; i++) log.line(`${i}`);
    await log.close(true);
    expect(sent.map((batch) => batch.lines.length)).toEqual([200, 200, 50, 0]);
    expect(sent.at(-1)!.done).toBe(true);
    expect(
      sent.flatMap((batch) => batch.lines).every((line, i) => line.seq === i && line.line === String(i)),
    ).toBe(true);
    await all.stop(100);
  });

  it('cuts a line that no body has room for, such as the only one of a file', async () => {
    const sent: LogBatch[] = [];
    const all = await shipper(sent);
    const log = await all.open('s');
    log.line(`note: .nvmrc asks for Node ${'\u0001'.repeat(2_000_000)}`);
    log.line('next');
    await log.close(true);
    expect(sent.flatMap(({ lines }) => lines.map(({ line }) => line.slice(-5)))).toEqual(['(cut)', 'next']);
    for (const batch of sent) expect(JSON.stringify(batch).length).toBeLessThan(4 * 1024 * 1024);
    await all.stop(10);
  });

  it('goes on behind the last number after a restart, also of lines whose answer was lost', async () => {
    const sent: LogBatch[] = [];
    const dead = await shipper([], { send: () => new Promise(() => undefined) });
    const log = await dead.open('s');
    log.line('was on its way');
    await new Promise((resolve) => setTimeout(resolve, 50));
    const next = await shipper(sent);
    const again = await next.open('s');
    again.line('after');
    await again.close(false);
    expect(sent[0]!.lines[0]).toMatchObject({ seq: 1, line: 'after' });
    await Promise.all([next.stop(10), dead.stop(10)]);
  });

  it('gives holders of one stream one numbering', async () => {
    const sent: LogBatch[] = [];
    const all = await shipper(sent);
    const [a, b] = await Promise.all([all.open('s'), all.open('s')]);
    a.line('one');
    b.line('two');
    a.line('three');
    await Promise.all([a.close(false), b.close(false)]);
    expect(sent.flatMap((batch) => batch.lines.map((line) => [line.seq, line.line]))).toEqual([
      [0, 'one'],
      [1, 'two'],
      [2, 'three'],
    ]);
    await all.stop(10);
  });

  it('holds a bounded number of lines while nobody takes them, and says how many it lost', async () => {
    const sent: LogBatch[] = [];
    let away = true;
    const all = await shipper(sent, {
      holdBytes: 1_000,
      send: async (...args: unknown[]) => {
        if (away) throw new Error('away');
        sent.push(args[1] as LogBatch);
      },
    });
    const log = await all.open('s');
    for (let i = 0; i < 100; i++) log.line('twenty characters ok');
    away = false;
    await log.close(false);
    const lines = sent.flatMap((batch) => batch.lines);
    expect(lines.length).toBeLessThan(20);
    expect(lines.at(-1)!.line).toBe(
      `nebo: ${100 - lines.length + 1} log lines were lost here, more came than could be sent`,
    );
    expect(lines.map((line) => line.seq)).toEqual(lines.map((_, i) => i));
    await all.stop(10);
  });
});

describe('small parts', () => {
  it('writes variables that a shell reads back byte for byte', () => {
    const file = envFile([
      { name: 'A', value: `it's "$HOME" \`x\` \\ \n two`, secret: false },
      { name: 'BAD-NAME', value: 'x', secret: false },
      { name: 'A;rm', value: 'x', secret: false },
    ]);
    expect(file).toBe(`export A='it'\\''s "$HOME" \`x\` \\ \n two'\n`);
  });

  it('takes addresses from 100.96.0.0/12 and a user for each', () => {
    expect(slotAt(0)).toMatchObject({ hostAddress: '100.96.0.1', address: '100.96.0.2', uid: 200_000 });
    expect(slotAt(2 ** 18 - 1)).toMatchObject({ hostAddress: '100.111.255.253', address: '100.111.255.254' });
  });

  it('goes on where the agent before it was, so that no address leads to another app at once', async () => {
    const dir = join(await mkdtemp(join(tmpdir(), 'nebo-slots-')), 'slots');
    const free = () => false;
    const first = new Slots(dir, 'a');
    const numbers = [first.acquire(free), first.acquire(free)].map(({ number }) => number);
    // Killed, or stopped: the slots are free again.
    const second = new Slots(dir, 'a');
    second.releaseAll();
    const next = (number: number) => (number + 1) % 2 ** 18;
    const third = second.acquire(free);
    expect([numbers[1], third.number]).toEqual([next(numbers[0]!), next(numbers[1]!)]);
    expect(await readdir(dir)).toEqual([String(third.number)]);
    // What cannot be read is as if it were not there.
    await writeFile(`${dir}.next`, '12345678');
    expect(new Slots(dir, 'a').acquire((address) => address === slotAt(numbers[0]!).hostAddress).number).toBe(
      numbers[1],
    );
    await rm(join(dir, '..'), { recursive: true });
  });

  it('reads NEBO_DRIVERS and refuses what it cannot do', async () => {
    expect([...parseDrivers('machines=local, builds=simulated')]).toEqual([
      ['machines', 'local'],
      ['builds', 'simulated'],
    ]);
    await expect(probeDrivers({ NEBO_DRIVERS: 'builds' })).rejects.toThrow('area=driver');
    await expect(probeDrivers({ NEBO_DRIVERS: 'builds=magic' })).rejects.toThrow('not "magic"');
    const { replicas } = await probeDrivers({ NEBO_DRIVERS: 'replicas=simulated' });
    expect(replicas).toEqual({
      driver: 'simulated',
      isolated: false,
      simulated: false,
      why: 'plain processes, whose use is not measured and costs nothing, asked for by NEBO_DRIVERS',
    });
  });
});
