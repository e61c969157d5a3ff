/** What is waited for after a call: a word of a record that is read again and again. */
export interface WaitSpec {
  /** Path of the record. */
  read: string;
  /** Where the answer of the call has an id for that path, of what was just made: its parameter. */
  made?: string;
  /** Field of the word; dots for fields inside. */
  field: string;
  good: readonly string[];
  bad: readonly string[];
  /** Field that says why it went wrong. */
  reason: string;
  /** It is done when there is no such record any more. */
  gone?: true;
}

/** One command of the table. */
export interface Verb {
  /**
   * `show ZONE`, `create NAME=name`: a word of `kinds` is a thing, named by name or id; `WORD=field` is a field of the body;
   * `[…]` may be left out; `FILE<field` is a file whose text is the field, `-` for stdin.
   */
  usage: string;
  alias?: string;
  summary: string;
  example: string;
  notes?: string;
  /** `METHOD path`. A command whose operation the contract lacks is not there. */
  call: string;
  /** Whose columns a list has. */
  rows?: string;
  /** Asks for the name first: the word whose thing goes. */
  ask?: string;
  /** Fields that are always sent. */
  preset?: Readonly<Record<string, unknown>>;
  /** Fields that are no flags here. */
  hidden?: readonly string[];
  /** `build`: until the build of the answer serves, with its log meanwhile. */
  wait?: WaitSpec | 'build';
  /** Said on stderr when it is done. */
  says?: string;
  /** Prints only this field of the answer, as text. */
  prints?: string;
  /** There is no read of one: it is found in the list. */
  fromList?: string;
}

/** A kind with its commands. */
export interface VerbGroup {
  name: string;
  summary: string;
  /** First line of the kind's help. */
  example: string;
  verbs: readonly Verb[];
}
