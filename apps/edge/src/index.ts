/** The edge: app domains over HTTP and TLS, from files or from replicas. */
export {
  createEdge,
  edgeDefaults,
  type Edge,
  type EdgeOptions,
  type EdgeStatus,
  type EdgeTuning,
} from './edge.js';
export { edgeSettings, type EdgeSettings } from './settings.js';
export { type RouteSource } from './routes/route-source.js';
export { targetRouteSource } from './routes/target-route-source.js';
export { type AppliedListener } from './routes/synchronizer.js';
export { type AccessEntry, type AccessHook } from './observe/access.js';
export { AccessLog, type LineSink } from './observe/access-log.js';
export { type EdgeLogger } from './observe/logger.js';
export { type Certificate, type CertificateSource } from './tls/certificate-source.js';
export { LocalCa } from './tls/local-ca.js';
export { HttpWakeDesk } from './wake/http-desk.js';
