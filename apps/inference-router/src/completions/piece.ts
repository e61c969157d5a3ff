import type { ToolCallPiece } from './tool-call-reader.js';

/** A piece of an answer, free of the vendor's habits. */
export interface Piece {
  content?: string;
  reasoning?: string;
  toolCalls?: ToolCallPiece[];
  /** As the vendor gives it, where the client asked for it. */
  logprobs?: unknown;
  /**
   * JSON text of the whole choice as the vendor wrote it. Only where it is exactly `{"index":0,"delta":{"content":…},
   * "finish_reason":null}`, so that the chat format may send it on instead of writing it anew.
   */
  choice?: string;
}
