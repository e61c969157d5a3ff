/** A running split installation (see split.mjs). */
export interface Split {
  home: string;
  env: Record<string, string>;
  baseUrl: string;
  aiUrl: string;
  edgeUrl: string;
  dnsAddress: string;
  key: string;
  inferenceKey: string;
  pids: number[];
  parts: Record<
    string,
    {
      child: import('node:child_process').ChildProcess;
      output: string;
      env: Record<string, string>;
      up(): void;
      /** `kill -9`, settled when it is gone. */
      kill(): Promise<void>;
      stop(): Promise<void>;
      /** @throws Error with what it printed when it ends or does not answer 200 in time */
      until(url: string, ms?: number): Promise<void>;
    }
  >;
  credentials: {
    accounts: { account_id: string; project_id: string; api_key: string; inference_key: string }[];
  };
  admin(...words: string[]): Promise<Record<string, unknown>>;
  stop(): Promise<void>;
}
export function startSplit(options?: {
  verbose?: boolean;
  env?: Record<string, string>;
  /** These services beside identity-billing, and no edge; default all. */
  only?: string[];
}): Promise<Split>;
export function findNatsServer(): string | null;
