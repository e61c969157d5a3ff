/** Go's folder of this user. */
export function goFolder(): string;
/** Path of helm on PATH, in `~/go/bin` or `/usr/local/bin`; null when there is none. */
export function findHelm(): string | null;
