import { embeddedContract } from '../contract/embedded.js';
import { type CommandSpec, type GroupSpec } from '../core/program.js';
import { commandOf } from './command.js';
import type { Verb } from './verbs.js';
import { appVerbs, moreVerbs } from './verbs-apps.js';
import { machineVerbs } from './verbs-machines.js';
import { networkVerbs } from './verbs-networks.js';

/** The whole table: a new command is a line in one of these files. */
export const verbGroups = [...appVerbs, ...machineVerbs, ...networkVerbs];

const commandsOf = (name: string, verbs: readonly Verb[]): CommandSpec[] => {
  const table = embeddedContract();
  return verbs.map((verb) => commandOf(name, verb, table)).filter((command) => command !== null);
};

/** Kinds of the table. Their commands are made when they are asked for: the contract is read then. */
export const tableGroups: readonly GroupSpec[] = verbGroups.map(({ name, summary, example, verbs }) => ({
  name,
  summary,
  example,
  get commands() {
    return commandsOf(name, verbs);
  },
}));

/** A kind with commands of its own, and those of the table behind them. */
export function withTable(group: GroupSpec): GroupSpec {
  const verbs = moreVerbs[group.name] ?? [];
  return {
    name: group.name,
    summary: group.summary,
    example: group.example ?? group.commands[0]!.example,
    get commands() {
      return [...group.commands, ...commandsOf(group.name, verbs)];
    },
  };
}
