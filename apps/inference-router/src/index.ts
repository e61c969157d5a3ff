export * from './inference-router.module.js';
