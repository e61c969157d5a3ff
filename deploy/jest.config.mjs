import { jestProject } from '../jest.preset.mjs';

export default jestProject('deploy', { testTimeout: 180_000 });
