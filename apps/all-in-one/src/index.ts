export * from './installation.js';
export * from './services.js';
