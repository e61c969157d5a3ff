export * from './blob-store.js';
export * from './embedded.js';
export * from './migrate.js';
export * from './postgres-binaries.js';
export * from './prisma.js';
export * from './sql.js';
