/** Gzip-compressed tar archives that strangers send: check, unpack, pack. */
export {
  archiveCheck,
  checkArchive,
  type ArchiveFiles,
  type ArchiveSummary,
  type CheckOptions,
} from './check.js';
export { extractArchive, type ExtractOptions } from './extract.js';
export { alwaysOut } from './ignore-rules.js';
export { applyLayer, LayerBudget, type AppliedLayer } from './layer.js';
export { LayerRefused, readLayer, type LayerEntry } from './layer-tar.js';
export {
  archiveLimits,
  archiveLimitsFromEnv,
  artifactLimits,
  sourceLimits,
  type ArchiveLimits,
} from './limits.js';
export { packFolder, type PackedFolder, type PackManifest, type PackOptions } from './pack.js';
export { type LeftOut, type PlannedEntry } from './plan.js';
export { ArchiveRefused, archiveRules, printable, type ArchiveRule } from './refused.js';
export { RootTree, type TreeLimits } from './root-tree.js';
