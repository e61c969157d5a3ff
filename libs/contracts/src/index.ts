export * from './agent.js';
export * from './internal/routes.js';
