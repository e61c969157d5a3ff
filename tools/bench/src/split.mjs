export { startSplit } from '../../start/split.mjs';
