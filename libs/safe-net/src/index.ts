export { checkAddress } from './addresses.js';
export {
  createSafeClient,
  type SafeClient,
  type SafeClientOptions,
  type SafeRequest,
  type SafeResponse,
} from './client.js';
export { defaultLookup, type Lookup, type TcpDial } from './dial.js';
export { SafeNetFailed, SafeNetRefused, type FailureKind } from './errors.js';
export { prepareGit, safeGitArgs, type GitCall, type GitOptions } from './git.js';
export { AllowList, checkUrl, parseAllowList, type CheckedUrl, type UrlPolicy } from './policy.js';
export {
  startEgressProxy,
  type EgressDoor,
  type EgressEntry,
  type EgressOptions,
  type EgressProxy,
} from './proxy.js';
