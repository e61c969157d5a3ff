import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Bench } from './nebo.js';
test('stress', async () => {
  const bench = await Bench.start();
  const site = join(bench.work, 'site');
  mkdirSync(site);
  writeFileSync(join(site, 'big.bin'), execFileSync('head', ['-c', '8000000', '/dev/urandom'], { maxBuffer: 1e8 }));
  bench.api.app('site', bench.api.project('shop'));
  const codes: Record<string, number> = {};
  for (let i = 0; i < 16; i++) {
    const all = await Promise.all([1,2,3].map(async () => { bench.api.answer('POST', /deployments$/, 'refuse'); return bench.run(['deploy', 'site', '--no-wait']); }));
    for (const r of all) { const k = `${r.code} ${/.*trying again.*|Too big/.exec(r.stderr)?.[0].replace(/:\d+/,'')}`; codes[k] = (codes[k] ?? 0) + 1; }
  }
  console.log(codes);
  await bench.stop();
}, 120000);
