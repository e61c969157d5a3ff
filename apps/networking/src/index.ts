export * from './networking.module.js';
