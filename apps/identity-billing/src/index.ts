export * from './identity-billing.module.js';
