export * from './away.js';
export * from './batched-read.js';
export * from './blob-store.js';
export * from './migrate.js';
export * from './prisma.js';
export * from './sql.js';
