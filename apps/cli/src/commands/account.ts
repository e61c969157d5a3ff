import type { V1Balance, WhoAmIResponse } from '@nebo/contracts';
import { type CommandSpec } from '../core/program.js';
import { cell, tabSeparated } from '../output/table.js';

/** `nebo whoami`: account, key and what the key may do. */
export const whoami: CommandSpec = {
  usage: 'whoami',
  summary: 'the account and the key in use, and what the key may do',
  example: 'nebo whoami',
  async run(ctx) {
    const me = await (await ctx.client()).get<WhoAmIResponse>('/account');
    if (ctx.print.structured || ctx.flags.columns) return ctx.print.record(me);
    if (ctx.print.format === 'name') return ctx.print.line(me.account_id);
    const rows: [string, string][] = [
      ['account_id', me.account_id],
      ['key_id', me.key_id],
      // An absent list is an older server's way to say "no limit".
      ['project_ids', me.project_ids === null || me.project_ids === undefined ? 'all' : cell(me.project_ids)],
      ...me.policy.map(({ effect, actions, resources }): [string, string] => [
        effect,
        `${actions.join(', ')} on ${resources.join(', ')}`,
      ]),
    ];
    if (!ctx.io.stdout.isTTY) return ctx.print.text(tabSeparated(rows));
    ctx.print.text(rows.map(([name, value]) => `${name.padEnd(12)} ${value}\n`).join(''));
  },
};

/** `nebo balance`. */
export const balance: CommandSpec = {
  usage: 'balance',
  summary: 'what is left to spend',
  example: 'nebo balance --jq .available',
  async run(ctx) {
    const found = await (await ctx.client()).get<V1Balance>('/account/balance');
    await ctx.print.record(found, {}, () => found.available);
  },
};
