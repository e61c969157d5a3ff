import { jestProject } from '../../jest.preset.mjs';

export default jestProject('cli', {
  globalSetup: '<rootDir>/test/global-setup.mjs',
  globalTeardown: '<rootDir>/test/global-teardown.mjs',
});
