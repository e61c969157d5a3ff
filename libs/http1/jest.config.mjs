import { jestProject } from '../../jest.preset.mjs';

export default jestProject('http1');
