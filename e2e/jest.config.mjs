import { jestProject } from '../jest.preset.mjs';

export default jestProject('e2e', { testTimeout: 120_000 });
