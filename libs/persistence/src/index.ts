export * from './sql.js';
export * from './migrate.js';
