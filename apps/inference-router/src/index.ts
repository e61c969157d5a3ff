export * from './inference-router.module.js';
export { loadCatalogue } from './catalogue/config-file.js';
