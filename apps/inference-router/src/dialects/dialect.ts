import type { Effort, Level } from '../catalogue/model.js';

/** JSON fields that are put into a vendor's request. */
export type Fields = Readonly<Record<string, unknown>>;

/** Counters of a request as they are billed and shown. Tokens. */
export interface Counters {
  /** All input, cached included. */
  input: number;
  cached: number;
  /** All output, reasoning included. */
  output: number;
  reasoning: number;
}

/** What differs between vendors of the chat format: mostly data (inference-wire.md, 5). */
export interface Dialect {
  name: string;
  /** What the vendor calls the ceiling of the output. */
  ceilingField: 'max_tokens' | 'max_completion_tokens';
  reasoning: {
    /** Null: no switch is known; the reasoning is hidden from the answer then. */
    off: Fields | null;
    on: Fields;
    /** The vendor's words for the levels; absent: the level is not sent, only "on". */
    levels?: Readonly<Record<Level, string>>;
    /** Fields of a level beside `on`. `ceiling`: output tokens of the request. */
    level?: (word: string, ceiling: number) => Fields;
    /**
     * What bounds the reasoning when no level is asked for, where the vendor's ceiling does not cover it: otherwise a request
     * with a tiny ceiling would get reasoning without end and pay for next to nothing.
     */
    bound?: (ceiling: number) => Fields;
  };
  /** Sent with every request. */
  always?: Fields;
  /** Sent when the request has tools. */
  withTools?: Fields;
  /** Client fields that the vendor refuses. */
  drops?: readonly string[];
  renames?: Readonly<Record<string, string>>;
  /** `auto`: any other choice is refused by the vendor; `none`: the field itself is. */
  toolChoice?: 'any' | 'auto' | 'none';
  /**
   * The strongest choice of tools that the vendor takes while its models reason. `auto`: none that forces a call; what the
   * client said about reasoning counts before the choice, and the choice before a default. `required`: none by name.
   * Absent: as `toolChoice` says.
   */
  choiceWhileReasoning?: 'auto' | 'required';
  /**
   * `told`: the vendor refuses a JSON schema for the answer, or takes it and does not keep to it. It is asked for JSON, and
   * the model is told the schema.
   */
  schemas?: 'told';
  /**
   * Where a system message may stand. `first`: at the very beginning and only one, since the models' chat templates know
   * no other; those at the beginning become one, later ones text of the user. Absent: anywhere.
   */
  system?: 'first';
  /** `bytes`: the vendor fetches no links to pictures. Absent: it does. The operator's file may say otherwise. */
  images?: 'bytes';
  /** A host of this dialect may leave the reasoning inside the text, as `<think>` at its beginning. */
  thinkTags?: boolean;
  /**
   * The vendor refuses histories whose assistant tool calls lack their reasoning; the text is the placeholder it takes.
   * `always`: also when reasoning is switched off, since the switch may have no effect there. `answers`: where a request
   * has tools, answers without calls need theirs as well; for them the placeholder is enough.
   */
  reasoningBack?: { placeholder: string; always?: boolean; answers?: boolean };
  /** Finish reasons beside the common ones; `broken`: the vendor gave up. */
  finish?: Readonly<Record<string, Finish | 'broken'>>;
  /** Codes of refusals that are about the operator's account, under a status that says something else. */
  accountCodes?: readonly string[];
  /** An error that the vendor sends with HTTP 200; null: none. */
  failure?: (chunk: Readonly<Record<string, unknown>>) => VendorFailure | null;
}

export type Finish = 'stop' | 'length' | 'tool_calls' | 'content_filter';

/** A vendor's error inside a successful answer. */
export interface VendorFailure {
  /** The HTTP status that it amounts to. */
  status: number;
  message: string;
}

/** What one upstream is asked about reasoning: the client's effort, or undefined when it said nothing. */
export type ReasoningWish = Effort | undefined;
