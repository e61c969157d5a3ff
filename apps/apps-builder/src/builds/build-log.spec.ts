import { request } from 'node:http';
import { Changes } from '@nebo/service-kit';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { Bench, eventually, pause } from '../../test/harness.js';

describe('logs as event streams', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let url: string;
  const at = '2026-11-21T00:00:00Z';

  /** A stream that is read as it comes. */
  const open = (path: string, headers: Record<string, string> = {}) => {
    const stream = {
      text: '',
      status: 0,
      headers: {} as Record<string, unknown>,
      ended: false,
      close: () => call.destroy(),
    };
    const call = request(`${url}/v1/${path}`, { headers: { ...bench.signed(), ...headers } }, (answer) => {
      stream.status = answer.statusCode!;
      stream.headers = answer.headers;
      answer
        .on('data', (part) => (stream.text += part))
        .on('end', () => (stream.ended = true))
        .on('error', () => undefined);
    });
    call.on('error', () => undefined);
    call.end();
    return stream;
  };
  /** Lines as the two known parsers count them: until `event: done`. */
  const parse = (text: string) => {
    const lines: string[] = [];
    for (const line of text.split('\n')) {
      if (line === 'event: done') return { lines, done: true };
      if (line.startsWith('data: ')) lines.push(line.slice(6));
    }
    return { lines, done: false };
  };
  const append = (stream: string, lines: string[], from = 0, done = false) =>
    agent.call('POST', `log/${stream}`, {
      lines: lines.map((line, index) => ({ seq: from + index, at, line })),
      done,
    });
  const fail = async (id: string) =>
    agent.observe(await agent.until('wanted', (item) => item.id === id), 'error', { reason: 'x' });

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
    url = await bench.listen();
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('one data line per log line, exact in form: ids, empty lines with the space, ANSI kept, one physical line, done last', async () => {
    const { app, build } = await bench.appWithBuild();
    await append(
      build.id,
      ['first', '', '\u001b[31mred\u001b[0m', 'a\rb\r\n', 'two\nlines', 'nul\0', 'event: done', 'data: x'],
      0,
      true,
    );
    await fail(build.id);
    await eventually(
      'final',
      async () => (await bench.api('GET', `apps/${app.id}/builds/${build.id}`)).body.status === 'error',
    );
    const { status, headers, text } = await bench.api('GET', `apps/${app.id}/builds/${build.id}/logs`);
    expect(status).toBe(200);
    expect(headers['content-type']).toContain('text/event-stream');
    expect(headers['content-encoding']).toBeUndefined();
    expect(text).toBe(
      ': build log\n\n' +
        'id: 0\ndata: first\n\nid: 1\ndata: \n\nid: 2\ndata: \u001b[31mred\u001b[0m\n\nid: 3\ndata: a b\n\nid: 4\ndata: two lines\n\n' +
        'id: 5\ndata: nul\ufffd\n\nid: 6\ndata: event: done\n\nid: 7\ndata: data: x\n\n' +
        'event: done\ndata: error\n\n',
    );
    expect(
      (await bench.api('GET', `projects/${bench.project}/apps/${app.id}/builds/${build.id}/logs`)).text,
    ).toBe(text);
  });

  it('live: headers and lines come at once, comments while it is silent, and done only after the last stored line', async () => {
    const { app, build } = await bench.appWithBuild();
    const stream = open(`apps/${app.id}/builds/${build.id}/logs`);
    await eventually('headers', async () => stream.status === 200 && stream.text.startsWith(':'));
    await append(build.id, ['one', 'two']);
    await eventually('two lines', async () => parse(stream.text).lines.length === 2, 1_000);
    await eventually('a comment', async () => stream.text.includes(': keep-alive\n\n'), 2_000);
    // The verdict is known, the last lines are still on their way.
    await fail(build.id);
    await pause(500);
    expect(parse(stream.text).done).toBe(false);
    await append(build.id, ['three'], 2);
    await append(build.id, ['four'], 3, true);
    await eventually('the end', async () => stream.ended);
    expect(parse(stream.text)).toEqual({ lines: ['one', 'two', 'three', 'four'], done: true });
    // What comes later is dropped: a second reader sees the same lines.
    await append(build.id, ['late'], 4);
    expect(parse((await bench.api('GET', `apps/${app.id}/builds/${build.id}/logs`)).text).lines).toEqual([
      'one',
      'two',
      'three',
      'four',
    ]);
  });

  it('batches that overtake each other or come twice are put in order', async () => {
    const { app, build } = await bench.appWithBuild();
    const stream = open(`apps/${app.id}/builds/${build.id}/logs`);
    await append(build.id, ['0']);
    await append(build.id, ['2', '3'], 2);
    await pause(300);
    expect(parse(stream.text).lines).toEqual(['0']);
    await append(build.id, ['0', '1'], 0);
    await eventually('all four', async () => parse(stream.text).lines.length === 4, 2_000);
    await append(build.id, ['0', 'changed', '2'], 0, true);
    await fail(build.id);
    await eventually('the end', async () => stream.ended);
    expect(parse(stream.text)).toEqual({ lines: ['0', '1', '2', '3'], done: true });
  });

  it('Last-Event-ID goes on behind that line; parts of a cut stream make the whole', async () => {
    const { app, build } = await bench.appWithBuild();
    const lines = Array.from({ length: 50 }, (_, index) => `line ${index}`);
    await append(build.id, lines, 0, true);
    await fail(build.id);
    const path = `apps/${app.id}/builds/${build.id}/logs`;
    await eventually(
      'final',
      async () => (await bench.api('GET', `apps/${app.id}/builds/${build.id}`)).body.status === 'error',
    );
    const read = async (last?: string) =>
      parse(
        (
          await bench.api(
            'GET',
            path,
            undefined,
            bench.key,
            last === undefined ? {} : { 'last-event-id': last },
          )
        ).text,
      );
    const first = lines.slice(0, 21);
    expect([...first, ...(await read('20')).lines]).toEqual(lines);
    expect(await read('49')).toEqual({ lines: [], done: true });
    // No reader of this log can have had that line: what it holds is of another log, or of a database of before.
    for (const ahead of ['50', '999999999999999999']) expect((await read(ahead)).lines).toEqual(lines);
    for (const odd of ['x', '-1', '1e9', '']) expect((await read(odd)).lines).toEqual(lines);
  });

  it('a region that never says that its log is whole does not keep readers: done after a grace', async () => {
    const { app, build } = await bench.appWithBuild();
    await append(build.id, ['only']);
    await fail(build.id);
    const stream = open(`apps/${app.id}/builds/${build.id}/logs`);
    await eventually('the line', async () => parse(stream.text).lines.length === 1);
    await eventually(
      'final',
      async () => (await bench.api('GET', `apps/${app.id}/builds/${build.id}`)).body.status === 'error',
    );
    await bench.sql("update build set finished_at = now() - interval '11 seconds' where id = $1", [build.id]);
    await append(build.id, ['too late'], 1);
    expect(parse(stream.text).done).toBe(false);
    await eventually('the end', async () => stream.ended, 4_000);
    expect(parse(stream.text)).toEqual({ lines: ['only'], done: true });
  });

  it('a build that no region ever began has an empty log that ends at once', async () => {
    const { app, build } = await bench.appWithBuild();
    await bench.api('POST', `apps/${app.id}/builds/${build.id}/cancel`);
    const begun = Date.now();
    expect(parse((await bench.api('GET', `apps/${app.id}/builds/${build.id}/logs`)).text)).toEqual({
      lines: [],
      done: true,
    });
    expect(Date.now() - begun).toBeLessThan(2_000);
  });

  it('100,000 lines are replayed in at most 5 s', async () => {
    const { app, build } = await bench.appWithBuild();
    await bench.sql(
      `insert into build_log_line (build_id, seq, account_id, at, line)
       select $1, n, $2, now(), 'line ' || n || repeat(' x', 40) from generate_series(0, 99999) n`,
      [build.id, bench.account],
    );
    await append(build.id, [], 0, true);
    await fail(build.id);
    await eventually(
      'final',
      async () => (await bench.api('GET', `apps/${app.id}/builds/${build.id}`)).body.status === 'error',
    );
    const begun = Date.now();
    const stream = open(`apps/${app.id}/builds/${build.id}/logs`);
    await eventually('the end', async () => stream.ended, 20_000);
    expect(Date.now() - begun).toBeLessThan(5_000);
    const { lines, done } = parse(stream.text);
    expect([lines.length, done, lines[99_999]!.startsWith('line 99999 ')]).toEqual([100_000, true, true]);
  });

  it('a client that leaves ends the work behind', async () => {
    const { app, build } = await bench.appWithBuild();
    const bell = (
      bench.nebo.services.get('apps-builder')!.app.get(Changes) as unknown as {
        bell: { listenerCount(name: string): number };
      }
    ).bell;
    const stream = open(`apps/${app.id}/builds/${build.id}/logs`);
    await eventually('open', async () => bell.listenerCount(`log:${build.id}`) === 1);
    stream.close();
    await eventually('closed', async () => bell.listenerCount(`log:${build.id}`) === 0, 3_000);
  });

  describe('deploy status', () => {
    const states = (text: string) =>
      [...text.matchAll(/^data: .*?"state":"(\w+)"/gm)].map(([, state]) => state).slice(0, -1);

    it('goes on behind the last event that was heard, with the states that were gone through meanwhile', async () => {
      const { app, build } = await bench.appWithBuild();
      const resumed = async (heard: string, query = '') =>
        states(
          (
            await bench.api('GET', `apps/${app.id}/events${query}`, undefined, bench.key, {
              'last-event-id': heard,
            })
          ).text,
        );
      const stream = open(`apps/${app.id}/events`);
      await eventually('queued', async () => stream.text.includes(`id: ${build.id}:0\n`));
      stream.close();
      const edge = new FakeEdge(bench);
      edge.run();
      await agent.build(build.id, 'static');
      await eventually(
        'live',
        async () => (await bench.api('GET', `apps/${app.id}`)).body.deploy_state === 'live',
      );
      await edge.stop();
      expect(await resumed(`${build.id}:0`)).toEqual(['building', 'built', 'rolling', 'live']);
      expect(await resumed(`${build.id}:2`)).toEqual(['rolling', 'live']);
      expect(await resumed(`${build.id}:4`)).toEqual([]);
      // The build that was watched is the one that is gone on with, also when there is a newer one.
      const newer = (await bench.api('POST', `apps/${app.id}/builds/${build.id}/rebuild`)).body;
      expect(await resumed(`${build.id}:3`)).toEqual(['live']);
      expect(await resumed(`${newer.id}:3`, `?build_id=${build.id}`)).toEqual(['live']);
      for (const none of ['', 'x', '7', `${build.id}:9`, `${app.id}:1`])
        expect(await resumed(none, `?build_id=${build.id}`)).toEqual(['live']);
    }, 90_000);

    it('waits while there is no build, tells each change of the newest one, and ends with done when it has failed', async () => {
      const app = await bench.app();
      const stream = open(`apps/${app.id}/events`);
      await eventually('a comment', async () => stream.text.includes(': keep-alive\n\n'), 3_000);
      expect(stream.text).not.toContain('event:');
      const { archive } = await import('../../test/harness.js');
      const build = (await bench.upload(`apps/${app.id}/deployments`, archive({ events: app.id }))).body;
      const item = await agent.until('wanted', ({ id }) => id === build.id);
      await eventually('queued', async () => stream.text.includes('"status":"queued"'));
      await agent.observe(item, 'building');
      await eventually('building', async () => stream.text.includes('"status":"building"'));
      await agent.observe(item, 'error', { reason: 'broken' });
      await eventually('the end', async () => stream.ended);
      const last = `{"build_id":"${build.id}","state":"build_failed","reason":"broken","status":"error","deploy_state":"build_failed","error":"broken","boot_error":null}`;
      const end = `id: ${build.id}:4\nevent: status\ndata: ${last}\n\nevent: done\ndata: ${last}\n\n`;
      expect(stream.text.endsWith(end)).toBe(true);
      expect(states(stream.text)).toEqual(['queued', 'building', 'build_failed']);
      expect((await bench.api('GET', `apps/${app.id}/events?build_id=${build.id}`)).text).toContain(
        'event: done',
      );
      expect((await bench.api('GET', `apps/${app.id}/events?build_id=nope`)).status).toBe(404);
    });
  });

  describe('runtime log', () => {
    it('shows the last lines of all replicas, follows, resumes, and ends with done when told not to follow', async () => {
      const { app, build } = await bench.appWithBuild();
      await agent.build(build.id, 'server');
      const [replica] = await agent.replicas(build.id, 1);
      await append(replica!.id, ['a', 'b', 'c']);
      await append(replica!.id, ['b', 'c', 'd'], 1);
      const history = (await bench.api('GET', `apps/${app.id}/logs?follow=false&tail=3`)).text;
      expect(parse(history)).toEqual({ lines: ['b', 'c', 'd'], done: true });
      expect(parse((await bench.api('GET', `apps/${app.id}/logs?follow=false&tail=0`)).text)).toEqual({
        lines: [],
        done: true,
      });
      const ids = [...history.matchAll(/^id: (\d+)$/gm)].map(([, id]) => id!);
      expect(
        parse(
          (
            await bench.api('GET', `apps/${app.id}/logs?follow=false`, undefined, bench.key, {
              'last-event-id': ids[1]!,
            })
          ).text,
        ).lines,
      ).toEqual(['d']);
      const ahead = await bench.api('GET', `apps/${app.id}/logs?follow=false&tail=2`, undefined, bench.key, {
        'last-event-id': String(BigInt(ids.at(-1)!) + 1_000n),
      });
      expect(parse(ahead.text).lines).toEqual(['c', 'd']);
      const stream = open(`apps/${app.id}/logs?tail=1`);
      await eventually('the tail', async () => parse(stream.text).lines.length === 1);
      await append(replica!.id, ['e'], 4);
      await eventually('the next', async () => parse(stream.text).lines.join() === 'd,e', 1_000);
      await bench.api('DELETE', `apps/${app.id}`);
      await eventually('the end with the app', async () => stream.ended);
      for (const query of ['tail=-1', 'tail=10001', 'follow=1', 'tail=x'])
        expect((await bench.api('GET', `apps/${(await bench.app()).id}/logs?${query}`)).status).toBe(422);
    });
  });
});
