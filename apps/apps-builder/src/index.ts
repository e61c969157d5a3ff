export * from './apps-builder.module.js';
