import { Injectable } from '@nestjs/common';

/** State of one part; `required` parts decide about readiness, others are shown only. */
export interface PartHealth {
  name: string;
  ok: boolean;
  required: boolean;
  detail?: string;
}

export interface HealthReport {
  ok: boolean;
  parts: PartHealth[];
}

type Check = () => Promise<Omit<PartHealth, 'name'>> | Omit<PartHealth, 'name'>;

/** What a service needs in order to be ready; each part registers its own check. */
@Injectable()
export class HealthRegistry {
  private readonly checks = new Map<string, Check>();

  add(name: string, check: Check): void {
    this.checks.set(name, check);
  }

  /** Runs all checks, each with two seconds at most. */
  async report(): Promise<HealthReport> {
    const parts = await Promise.all(
      [...this.checks].map(async ([name, check]): Promise<PartHealth> => {
        try {
          return { name, ...(await withLimit(check())) };
        } catch (error) {
          return { name, ok: false, required: true, detail: (error as Error).message };
        }
      }),
    );
    return { ok: parts.every((part) => part.ok || !part.required), parts };
  }
}

async function withLimit<T>(work: Promise<T> | T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('no answer in 2 s')), 2_000);
  });
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}
