export * from './compute.module.js';
