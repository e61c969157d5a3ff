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
  parts: Record<string, { child: import('node:child_process').ChildProcess; output: string }>;
  credentials: {
    accounts: { account_id: string; project_id: string; api_key: string; inference_key: string }[];
  };
  admin(...words: string[]): Promise<Record<string, unknown>>;
  stop(): Promise<void>;
}
export function startSplit(options?: { verbose?: boolean; env?: Record<string, string> }): Promise<Split>;
export function findNatsServer(): string | null;
