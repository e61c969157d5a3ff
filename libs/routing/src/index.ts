export { compileRouting, type RoutingFileName, routingFileNames } from './compile.js';
export type { CompiledRouting } from './compiled.js';
export { isCompiledRouting } from './is-compiled.js';
export { type Problem, RoutingFileError } from './problem.js';
export type { RoutedRequest } from './request.js';
export { type Before, type HeaderPair, Router, type Rewritten } from './router.js';
