export * from './dns.module.js';
export { Publisher } from './publisher/publisher.js';
export { dnsSettings } from './zones/settings.js';
