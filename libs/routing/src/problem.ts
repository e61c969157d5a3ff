/** What is wrong or worth a word in a routing file, with the place where it stands. */
export interface Problem {
  file: string;
  /** From 1. */
  line: number;
  message: string;
}

/** A routing file cannot be used: nothing of it is, rather than a part. */
export class RoutingFileError extends Error {
  override name = 'RoutingFileError';

  constructor(readonly problems: readonly Problem[]) {
    super(problems.map(({ file, line, message }) => `${file}:${line}: ${message}`).join('\n'));
  }
}
