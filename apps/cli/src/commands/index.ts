import { type CommandSpec, type GroupSpec } from '../core/program.js';
import { balance, whoami } from './account.js';
import { api } from './api.js';
import { app } from './app.js';
import { auth } from './auth.js';
import { build } from './build.js';
import { deploy } from './deploy.js';
import { doctor } from './doctor.js';
import { env } from './env.js';
import { key, versionCommand } from './plain.js';
import { project } from './project.js';
import { usage } from './usage.js';

/** Every kind with its verbs. A new kind is a file and a line here. */
export const groups: readonly GroupSpec[] = [auth, project, app, build, env];

/** Commands of one word. */
export const singles: readonly CommandSpec[] = [
  deploy,
  api,
  whoami,
  balance,
  usage,
  doctor,
  key,
  versionCommand,
];
