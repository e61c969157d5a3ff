import { version } from '../core/context.js';
import { type CommandSpec } from '../core/program.js';

/** `nebo version`. */
export const versionCommand: CommandSpec = {
  usage: 'version',
  summary: 'versions of this command, of its contract and of Node',
  example: 'nebo version',
  async run(ctx) {
    const { embeddedContract } = await import('../contract/embedded.js');
    const found = { version, contract: embeddedContract().version, node: process.versions.node };
    if (ctx.print.structured) return ctx.print.value(found);
    ctx.print.line(
      ctx.print.format === 'name'
        ? version
        : `nebo ${version}, contract ${found.contract}, node ${found.node}`,
    );
  },
};

/** `nebo key`: keys are minted where a person signs in, by the operator's command as long as there is no panel. */
export const key: CommandSpec = {
  usage: 'key',
  summary: 'where keys are made',
  example: 'nebo key',
  async run(ctx) {
    const { apiUrl } = await ctx.account();
    ctx.talk.notice(
      'The operator makes and ends keys: npm run -s admin -- key create, key revoke. The panel, once there is one:',
    );
    ctx.print.line(`${new URL(apiUrl).origin}/`);
  },
};
