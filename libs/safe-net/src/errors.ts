/**
 * A request that must not leave: the rule that refused it and a sentence that its author may read. Neither tells what an
 * internal name resolves to.
 */
export class SafeNetRefused extends Error {
  override readonly name = 'SafeNetRefused';

  /**
   * @param rule stable word, e.g. `scheme`, `port`, `userinfo`, `host_name`, `address:loopback`, `redirects`
   * @param publicMessage one sentence for the user
   */
  constructor(
    readonly rule: string,
    readonly publicMessage: string,
  ) {
    super(publicMessage);
  }
}

/** Why an allowed request got no usable answer. */
export type FailureKind = 'dns' | 'connect' | 'timeout' | 'too_large' | 'protocol' | 'aborted';

/** An allowed request that failed on its way; `cause` is for the log only. */
export class SafeNetFailed extends Error {
  override readonly name = 'SafeNetFailed';

  constructor(
    readonly kind: FailureKind,
    readonly publicMessage: string,
    cause?: unknown,
  ) {
    super(publicMessage, { cause });
  }
}
