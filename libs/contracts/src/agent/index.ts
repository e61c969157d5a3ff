export * from './apps.js';
export * from './blob-ref.js';
export * from './machines.js';
export * from './messages.js';
export * from './usage.js';
