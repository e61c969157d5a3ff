/** Orders of machines at a steady rate, and how long each takes from the intent until it is active. */
import { pause } from '../inference/parts.mjs';

/** VPCs that the orders go to in turn, made once for a lane: a network with few machines is told in few words. */
const networks = 10;

/**
 * Orders machines at a rate that does not wait for answers, and waits for each as a client does.
 * @param {{ perSecond: number, seconds: number, made?: (ids: string[]) => Promise<void> }} load `made`: told before they are
 *   deleted again
 * @returns {Promise<{ ms: number[], failed: string[], cpu: Record<string, number>, seconds: number }>} milliseconds from the
 *   moment when the order was due; CPU seconds of each part
 */
export async function createAtRate(lane, { perSecond, seconds, made }) {
  lane.vpcs ??= await Promise.all(
    Array.from({ length: networks }, (_, number) =>
      lane.vpc(lane.account, `orders ${number}`, `172.20.${number}.0/24`),
    ),
  );
  const before = lane.cpu();
  const ids = [];
  const ms = [];
  const failed = [];
  const one = async (number, due) => {
    try {
      const id = await order(lane, number);
      ids.push(id);
      const { body } = await lane.call('GET', `/vms/${id}?wait=active&timeout=60`);
      if (body.status === 'active') ms.push(performance.now() - due);
      else failed.push(`${body.status}: ${body.status_reason}`);
    } catch (error) {
      failed.push(error.message);
    }
  };
  const began = performance.now();
  const running = [];
  for (let number = 0; number < perSecond * seconds; number += 1) {
    const due = began + (number * 1_000) / perSecond;
    const left = due - performance.now();
    if (left > 0) await pause(left);
    running.push(one(number, due));
  }
  await Promise.all(running);
  const took = (performance.now() - began) / 1_000;
  const after = lane.cpu();
  const cpu = Object.fromEntries(Object.entries(after).map(([part, used]) => [part, used - before[part]]));
  await made?.(ids);
  await removeAll(lane, ids);
  return { ms, failed, cpu, seconds: took };
}

async function order(lane, number) {
  lane.made = (lane.made ?? 0) + 1;
  const interfaces = [{ type: 'vpc', vpc_id: lane.vpcs[number % networks] }];
  const body = { ...lane.order, name: `bench ${lane.made}`, interfaces };
  return (await lane.call('POST', `/projects/${lane.account.project_id}/vms`, body)).body.id;
}

/** Deletes machines, a few at a time, and waits until nothing of them is left. */
async function removeAll(lane, ids) {
  for (let from = 0; from < ids.length; from += 20)
    await Promise.all(ids.slice(from, from + 20).map((id) => lane.call('DELETE', `/vms/${id}`)));
  for (;;) {
    const { rows } = await lane.sql.query('select count(*)::int as left from compute.vm where id = any($1)', [
      ids,
    ]);
    if (rows[0].left === 0) return;
    await pause(200);
  }
}
