/** What `npm start` runs: the whole installation in one process. */
import { runInstallation } from './run.js';

await runInstallation();
