import { type AgentLog } from '../agent-log.js';
import { EngineClient } from './client.js';
import { type EngineSettings } from './settings.js';

/** A container engine that answers. */
export interface Engine {
  client: EngineClient;
  /** As `Docker 20.10.24`. */
  words: string;
  kind: 'docker' | 'podman';
}

interface Version {
  Version?: string;
  Os?: string;
  Components?: { Name?: string; Version?: string }[];
}

const pingMs = 2_000;
const everyMs = 60_000;

/** Asks one socket. Null: nobody answers there, or no engine for Linux. */
async function ask(socket: string): Promise<Engine | null> {
  const client = new EngineClient(socket);
  try {
    const signal = AbortSignal.timeout(pingMs);
    (await client.open('GET', '/_ping', { signal })).resume();
    const version = await client.json<Version>('GET', '/version', { signal });
    if ((version?.Os ?? 'linux') !== 'linux') return null;
    const podman = version?.Components?.find(({ Name = '' }) => /podman/i.test(Name));
    const number = podman?.Version ?? version?.Version ?? '';
    return { client, kind: podman ? 'podman' : 'docker', words: `${podman ? 'Podman' : 'Docker'} ${number}` };
  } catch {
    return null;
  }
}

/** The first engine that answers; null: none does. */
export async function findEngine({ sockets }: EngineSettings): Promise<Engine | null> {
  for (const socket of sockets) {
    const found = await ask(socket);
    if (found) return found;
  }
  return null;
}

/** The region's container engine as it is by now: it may come and go while the agent runs. */
export class ContainerEngines {
  private present: Engine | null = null;
  private timer: NodeJS.Timeout | null = null;

  constructor(
    readonly settings: EngineSettings,
    private readonly log: AgentLog,
  ) {}

  /** Looks, and again every minute, so that the operator's log says when it went. */
  async start(): Promise<void> {
    if (this.settings.sockets.length === 0) return;
    await this.look();
    this.timer ??= setInterval(() => void this.look(), everyMs).unref();
  }

  stop(): void {
    if (this.timer) clearInterval(this.timer);
    this.timer = null;
  }

  /** Asks anew: for a build, what was true a minute ago is not enough. */
  async look(): Promise<Engine | null> {
    const found = await findEngine(this.settings);
    const [now, before] = [found?.client.socket ?? null, this.present?.client.socket ?? null];
    if (now !== before && found)
      this.log.info({ socket: now }, `${found.words} answers: Dockerfiles are built`);
    if (now !== before && !found)
      this.log.warn({ socket: before }, 'the container engine went: builds of Dockerfiles fail');
    this.present = found;
    return found;
  }
}
