/** The part of a pino logger that the edge uses. */
export interface EdgeLogger {
  debug(facts: object, message: string): void;
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

/** Says nothing. */
export const silentLogger: EdgeLogger = { debug() {}, info() {}, warn() {}, error() {} };
