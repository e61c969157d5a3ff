export { startSplit } from '../../../e2e/harness/split.mjs';
