import { residentBytes, startInstallation, median } from './installation.mjs';

const rounds = 3;

/** Time from the start of the process to readiness, on empty data and again; memory at rest. */
export async function benchStart() {
  const first = [];
  const second = [];
  const memory = [];
  for (let round = 0; round < rounds; round += 1) {
    const fresh = await startInstallation();
    first.push(fresh.readyMs);
    await fresh.stop();
    const again = await startInstallation(fresh.home);
    second.push(again.readyMs);
    await new Promise((done) => setTimeout(done, 5_000));
    memory.push(residentBytes(again.child.pid));
    await again.stop();
    again.remove();
  }
  const seconds = (values) => values.map((value) => (value / 1000).toFixed(1)).join(' ');
  return [
    '| figure | runs | median | goal |',
    '|---|---|---|---|',
    `| ready from empty data, s | ${seconds(first)} | ${(median(first) / 1000).toFixed(1)} | ≤ 8 |`,
    `| second start, s | ${seconds(second)} | ${(median(second) / 1000).toFixed(1)} | ≤ 4 |`,
    `| RSS of the one process at rest, MB | ${memory.map((bytes) => Math.round(bytes / 1e6)).join(' ')} | ${Math.round(median(memory) / 1e6)} | ≤ 350 |`,
  ].join('\n');
}
