export * from './dns.module.js';
