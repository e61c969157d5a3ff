export * from './builtin-driver.js';
