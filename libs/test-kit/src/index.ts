export { findPebble, startAcme, type AcmeOptions, type AcmePart } from './acme.js';
export { selfSigned } from './certificate.js';
export * from './debian.js';
export { findEngine, wantedForm, type Engine } from './engine.js';
export {
  canStartKafka,
  findKafka,
  installKafka,
  startKafka,
  type KafkaPart,
  type KafkaParts,
} from './kafka.js';
export { GitHostPart, type GitHostOptions, type MadeDelivery, type PushOptions } from './git-host.js';
export { gitDialects, type GitDialect, type SentPayload } from './git-host-payloads.js';
export { gitPayloads, type KeptPayload } from './git-payloads.js';
export { type HostedRepository } from './git-repositories.js';
export * from './images.js';
export { findNats, startNats, type NatsPart } from './nats.js';
export { cacheFolder, findProgram, freePort, stopAllParts, waitFor, type Found } from './parts.js';
export {
  freshDatabase,
  sharedPostgres,
  startPostgres,
  type PostgresOptions,
  type PostgresPart,
} from './postgres.js';
export { startOtlpReceiver, type ExportedSpan, type OtlpReceiver } from './otlp.js';
export { RegistryPart, type RegistryFaults } from './registry.js';
export * from './upstream.js';
export { framesOf, type AnsweredRequest, type Frames } from './upstream-frames.js';
export { upstreamDialects, upstreamHabits, type UpstreamDialect } from './upstream-habits.js';
export { OwnEngine, ownEngineMissing, type OwnEngineKind } from './own-engine.js';
