import { register } from 'prom-client';
import { Figures } from './figures.js';
import { collectProcessMetrics, createMetrics, Registry } from './metrics.js';

describe('createMetrics', () => {
  it('counts requests, times them, and shows them as text', async () => {
    const metrics = createMetrics('compute');
    metrics.http({ method: 'GET', operation: 'list_vms', status: 200, seconds: 0.004 });
    metrics.http({ method: 'GET', operation: 'list_vms', status: 200, seconds: 0.2 });
    const text = await metrics.text();
    expect(text).toContain(
      'nebo_http_requests_total{service="compute",method="GET",operation="list_vms",status="200"} 2',
    );
    expect(text).toContain(
      'nebo_http_request_seconds_bucket{le="0.005",service="compute",method="GET",operation="list_vms"} 1',
    );
    expect(text).toContain(
      'nebo_http_request_seconds_bucket{le="+Inf",service="compute",method="GET",operation="list_vms"} 2',
    );
    expect(text).toContain(
      'nebo_http_request_seconds_count{service="compute",method="GET",operation="list_vms"} 2',
    );
    expect(text).toContain('# TYPE nebo_http_request_seconds histogram');
    expect(metrics.contentType).toContain('text/plain');
  });

  it('shows outbox, lifecycles, breakers and failures in base units', async () => {
    const metrics = createMetrics('dns');
    metrics.outbox(7, 1_500);
    metrics.missedDeadline('zone', 'verifying');
    metrics.lifecycles('zone', 'verifying', 3, 1);
    metrics.failure('relay');
    for (const state of ['closed', 'open', 'open', 'half_open', 'open'] as const)
      metrics.breaker('resolver', state);
    const text = await metrics.text();
    for (const line of [
      'nebo_outbox_pending{service="dns"} 7',
      'nebo_outbox_lag_seconds{service="dns"} 1.5',
      'nebo_lifecycle_missed_deadlines_total{service="dns",kind="zone",state="verifying"} 1',
      'nebo_lifecycles{service="dns",kind="zone",state="verifying"} 3',
      'nebo_lifecycles_failing{service="dns",kind="zone",state="verifying"} 1',
      'nebo_failures_total{service="dns",where="relay"} 1',
      'nebo_breaker_state{service="dns",name="resolver"} 2',
      'nebo_breaker_opened_total{service="dns",name="resolver"} 2',
    ]) {
      expect(text).toContain(line);
    }
  });

  it('lets services of one process share a registry, told apart by label', async () => {
    const registry = new Registry();
    const [one, two] = [createMetrics('one', registry), createMetrics('two', registry)];
    one.outbox(1, 0);
    two.outbox(2, 0);
    const text = await one.text();
    expect(text).toContain('nebo_outbox_pending{service="one"} 1');
    expect(text).toContain('nebo_outbox_pending{service="two"} 2');
    expect(await two.text()).toBe(text);
  });

  it('makes metrics of the service’s own, once', async () => {
    const metrics = createMetrics('router');
    metrics.counter('nebo_tokens_total', 'Tokens', ['model'])({ model: 'm' }, 5);
    metrics.counter('nebo_tokens_total', 'Tokens', ['model'])({ model: 'm' }, 5);
    metrics.gauge('nebo_streams', 'Open streams')(4);
    metrics.histogram('nebo_first_token_seconds', 'First token', [], [1, 2])(1.5);
    const text = await metrics.text();
    expect(text).toContain('nebo_tokens_total{service="router",model="m"} 10');
    expect(text).toContain('nebo_streams{service="router"} 4');
    expect(text).toContain('nebo_first_token_seconds_bucket{le="2",service="router"} 1');
  });

  it('keeps what a histogram counts apart by labels, in whatever order they come, and by service', async () => {
    const metrics = createMetrics('router');
    const seconds = metrics.histogram('nebo_seconds', 'Seconds', ['model', 'outcome'], [1, 2]);
    for (const value of [0.5, 1.5]) seconds(value, { model: 'a', outcome: 'b' });
    seconds(0.5, { outcome: 'b', model: 'a' });
    seconds(5, { model: 'a b', outcome: '' });
    expect(() => seconds(1, { model: 'a', other: 'x' } as never)).toThrow(/label/i);
    const text = await metrics.text();
    expect(text).toContain('nebo_seconds_count{service="router",model="a",outcome="b"} 3');
    expect(text).toContain('nebo_seconds_bucket{le="1",service="router",model="a",outcome="b"} 2');
    expect(text).toContain('nebo_seconds_count{service="router",model="a b",outcome=""} 1');
  });

  it('counts a request in well under a microsecond, and shows no operation that nobody asked for', async () => {
    const metrics = createMetrics('compute');
    const count = metrics.requests('GET', 'list_vms');
    metrics.requests('GET', 'read_vm');
    let best = Infinity;
    for (let round = 0; round < 7; round += 1) {
      const before = process.hrtime.bigint();
      for (let i = 0; i < 100_000; i += 1) count(200, 0.25);
      best = Math.min(best, Number(process.hrtime.bigint() - before) / 100_000);
    }
    process.stderr.write(`counting a request: ${best.toFixed(1)} ns\n`);
    expect(best).toBeLessThan(1_000);
    const text = await metrics.text();
    expect(text).toMatch(/nebo_http_requests_total\{.*operation="list_vms",status="200"\} 700000/);
    expect(text).toMatch(/nebo_http_request_seconds_sum\{.*operation="list_vms"\} 175000/);
    expect(text).not.toContain('read_vm');
  });

  it('brings figures up to date before a scrape; one that fails or hangs holds up no other', async () => {
    const figures = new Figures();
    const metrics = createMetrics('dns', figures);
    let rows = 1;
    const end = figures.beforeScrape(async () => metrics.outbox(rows, 0));
    figures.beforeScrape(() => Promise.reject(new Error('away')));
    figures.beforeScrape(() => new Promise(() => undefined));
    const text = await metrics.text();
    expect(text).toContain('nebo_outbox_pending{service="dns"} 1');
    expect(text).toContain('process_cpu_user_seconds_total');
    end();
    rows = 2;
    expect(await metrics.text()).toContain('nebo_outbox_pending{service="dns"} 1');
  });

  it('leaves prom-client’s default registry alone', async () => {
    createMetrics('x').failure('y');
    expect(await register.getMetricsAsArray()).toEqual([]);
  });

  it('adds process metrics once', async () => {
    const registry = new Registry();
    collectProcessMetrics(registry);
    collectProcessMetrics(registry);
    expect(await registry.metrics()).toContain('process_cpu_user_seconds_total');
  });
});
