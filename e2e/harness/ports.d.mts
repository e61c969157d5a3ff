/** A TCP port of 127.0.0.1 that is free and was not given out before by this process. */
export function freePort(): Promise<number>;
/** Several, all different. */
export function freePorts(count: number): Promise<number[]>;
