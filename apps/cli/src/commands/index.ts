import { type CommandSpec, type GroupSpec } from '../core/program.js';
import { tableGroups, withTable } from '../kinds/groups.js';
import { balance, whoami } from './account.js';
import { api } from './api.js';
import { app } from './app.js';
import { auth } from './auth.js';
import { build } from './build.js';
import { deploy } from './deploy.js';
import { doctor } from './doctor.js';
import { env } from './env.js';
import { git } from './git.js';
import { logs } from './logs.js';
import { key, versionCommand } from './plain.js';
import { project } from './project.js';
import { usage } from './usage.js';

/** Every kind with its verbs: a file and a line here, or lines in the table of `kinds`. */
export const groups: readonly GroupSpec[] = [
  auth,
  withTable(project),
  withTable(app),
  withTable(build),
  env,
  git,
  ...tableGroups,
];

/** Commands of one word. */
export const singles: readonly CommandSpec[] = [
  deploy,
  logs,
  api,
  whoami,
  balance,
  usage,
  doctor,
  key,
  versionCommand,
];
