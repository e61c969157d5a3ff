export * from './embedded.js';
export * from './postgres-binaries.js';
