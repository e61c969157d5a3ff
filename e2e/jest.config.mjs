import { jestProject } from '../jest.preset.mjs';

// Each file starts an installation of its own: two at a time would only slow each other down.
export default jestProject('e2e', { testTimeout: 120_000, maxWorkers: 1 });
