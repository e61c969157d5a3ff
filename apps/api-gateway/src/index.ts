export * from './gateway.js';
export { LeasedRateLimiter, leaseFrom } from './limits/rate-limiter.js';
