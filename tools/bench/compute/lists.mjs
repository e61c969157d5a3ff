/** A page of 200 machines out of many against one out of few, the first, a middle and the last one. */
import { median } from '../inference/measure.mjs';

const page = 200;

/** @returns the table as Markdown */
export async function measureLists(lane, small, { many, listed, rounds }) {
  const places = [
    ['first page', 0, 0],
    ['page in the middle', listed / 2, many / 2],
    ['last page', listed - page, many - page],
  ];
  const rows = [];
  for (const [name, offsetOfFew, offsetOfMany] of places) {
    const times = { few: [], many: [] };
    const one = async (account, offset) => {
      const began = performance.now();
      const path = `/projects/${account.project_id}/vms?limit=${page}&offset=${Math.round(offset)}`;
      const { body } = await lane.call('GET', path, undefined, account.api_key);
      if (body.data.length !== page) throw new Error(`${path} has ${body.data.length} machines`);
      return performance.now() - began;
    };
    for (let round = 0; round < rounds + 3; round += 1) {
      const ms = [await one(small, offsetOfFew), await one(lane.account, offsetOfMany)];
      if (round < 3) continue;
      times.few.push(ms[0]);
      times.many.push(ms[1]);
    }
    const ratio = median(times.many.map((ms, round) => ms / times.few[round]));
    rows.push(
      `| list of ${page}, ${name}, ms | ${median(times.few).toFixed(1)} | ${median(times.many).toFixed(1)} | ${ratio.toFixed(2)} | ≤ 2 | ${ratio <= 2 ? 'met' : 'missed'} |`,
    );
  }
  const head = [
    'figure',
    `of ${listed.toLocaleString('en')}`,
    `of ${many.toLocaleString('en')}`,
    'times',
    'goal',
    'verdict',
  ];
  return [`| ${head.join(' | ')} |`, `| ${head.map(() => '---').join(' | ')} |`, ...rows].join('\n');
}
