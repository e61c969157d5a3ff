import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { lastingBlobs } from '../src/areas/lasting-blobs.js';
import { ControlPlaneError, Superseded } from '../src/control/control-plane.js';
import { HttpControlPlane } from '../src/control/http-control-plane.js';
import { silentLog } from '../src/agent-log.js';
import { isAbort } from '../src/system/timing.js';
import { eventually } from './agent-kit.js';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

describe('blobs over connections that break', () => {
  const bytes = randomBytes(3_000_000);
  const blob = { sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.length };
  const never = new AbortController().signal;
  let server: Server;
  let plane: HttpControlPlane;
  /** Each call takes the next one; the last stays. */
  let answers: Answer[];
  let calls: number;

  beforeEach(async () => {
    calls = 0;
    server = createServer((request, response) =>
      answers[Math.min(calls++, answers.length - 1)]!(request, response),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    plane = new HttpControlPlane({
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      token: 't',
    });
  });
  afterEach(async () => {
    await plane.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  const blobs = (patienceMs = 30_000) => lastingBlobs(plane, { log: silentLog, firstWaitMs: 5, patienceMs });
  const status =
    (code: number): Answer =>
    (request, response) =>
      void request.resume().on('end', () => response.writeHead(code).end());
  const whole: Answer = (_, response) =>
    response.writeHead(200, { 'content-length': bytes.length }).end(bytes);
  const cutAt =
    (size: number): Answer =>
    (_, response) => {
      response.writeHead(200, { 'content-length': bytes.length });
      response.write(bytes.subarray(0, size), () => setTimeout(() => response.destroy(), 5));
    };
  const hangUp: Answer = (request) => void request.socket.destroy();

  it('what is read goes on where it stopped', async () => {
    answers = [
      hangUp,
      status(503),
      cutAt(1),
      cutAt(1_000_001),
      status(500),
      hangUp,
      cutAt(70_000),
      cutAt(2_999_999),
      whole,
    ];
    const read = await buffer(await blobs().get(blob.sha256, never));
    expect(read.equals(bytes)).toBe(true);
    expect(calls).toBe(9);
  });

  it('what is stored is sent again from its beginning', async () => {
    let taken = Buffer.alloc(0);
    const inTheMiddle: Answer = (request) => void request.once('data', () => request.socket.destroy());
    const take: Answer = (request, response) =>
      void buffer(request).then((all) => {
        taken = all;
        response.writeHead(201).end();
      });
    answers = [inTheMiddle, status(502), inTheMiddle, status(429), take];
    let opened = 0;
    const open = () => {
      opened += 1;
      return Readable.from([bytes.subarray(0, 1_500_000), bytes.subarray(1_500_000)]);
    };
    await blobs().put(blob, open, never);
    expect(taken.equals(bytes)).toBe(true);
    expect(opened).toBe(5);
  });

  it.each([
    [404, ControlPlaneError],
    [413, ControlPlaneError],
    [422, ControlPlaneError],
    [409, Superseded],
  ])('%i is an answer, and not asked for again', async (code, kind) => {
    answers = [status(code)];
    await expect(blobs().get(blob.sha256, never)).rejects.toBeInstanceOf(kind);
    await expect(blobs().put(blob, () => Readable.from([bytes]), never)).rejects.toBeInstanceOf(kind);
    expect(calls).toBe(2);
  });

  it('a blob that is gone in between ends what is read with that', async () => {
    answers = [cutAt(10_000), status(404)];
    await expect(blobs().get(blob.sha256, never).then(buffer)).rejects.toMatchObject({ status: 404 });
  });

  it('tells who waits of each wait, once until something moves', async () => {
    const told: string[] = [];
    const telling = lastingBlobs(plane, {
      log: silentLog,
      firstWaitMs: 5,
      tell: (sentence) => told.push(sentence),
    });
    answers = [whole];
    await buffer(await telling.get(blob.sha256, never));
    expect(told).toEqual([]);
    calls = 0;
    answers = [hangUp, status(503), hangUp, cutAt(1_000), status(503), hangUp, whole];
    await buffer(await telling.get(blob.sha256, never));
    const wait = 'the control plane does not answer; waiting for it, 120 seconds at most';
    expect(told).toEqual([wait, wait]);
    calls = 0;
    answers = [
      status(503),
      status(503),
      (request, response) => void request.resume().on('end', () => response.writeHead(201).end()),
    ];
    await telling.put(blob, () => Readable.from([bytes]), never);
    expect(told).toEqual([wait, wait, wait]);
  });

  it('a file that cannot be opened is told at once', async () => {
    answers = [status(201)];
    await expect(blobs().put(blob, () => createReadStream('/no/such/file'), never)).rejects.toMatchObject({
      code: 'ENOENT',
    });
  });

  it('is given up when nothing has moved for too long, with what was the matter', async () => {
    answers = [status(503)];
    await expect(blobs(60).put(blob, () => Readable.from([bytes]), never)).rejects.toMatchObject({
      status: 503,
    });
    await expect(blobs(60).get(blob.sha256, never)).rejects.toMatchObject({ status: 503 });
    answers = [cutAt(5_000), hangUp];
    calls = 0;
    await expect(blobs(60).get(blob.sha256, never).then(buffer)).rejects.toThrow();
    expect(calls).toBeGreaterThan(2);
  });

  it('ends at once when it is not wanted any more, in its pauses too', async () => {
    answers = [status(503)];
    for (const begin of [
      (signal: AbortSignal) => blobs().get(blob.sha256, signal),
      (signal: AbortSignal) => blobs().put(blob, () => Readable.from([bytes]), signal),
    ]) {
      const end = new AbortController();
      calls = 0;
      const work = begin(end.signal).catch((error: unknown) => error);
      await eventually(() => calls > 2);
      end.abort();
      expect(isAbort(await work)).toBe(true);
    }
  });

  it('who has read enough closes the connection', async () => {
    let isClosed = false;
    answers = [
      (_, response) => {
        response.writeHead(200, { 'content-length': bytes.length }).write(bytes.subarray(0, 100_000));
        response.once('close', () => (isClosed = true));
      },
    ];
    const stream = await blobs().get(blob.sha256, never);
    for await (const part of stream) {
      expect((part as Buffer).length).toBeGreaterThan(0);
      break;
    }
    await eventually(() => isClosed);
    // Also before anything was read.
    isClosed = false;
    (await blobs().get(blob.sha256, never)).destroy();
    await eventually(() => isClosed);
    expect(calls).toBe(2);
  });
});
