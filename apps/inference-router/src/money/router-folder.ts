import { createHash, randomUUID } from 'node:crypto';
import {
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { ConfigError } from '@nebo/service-kit';

/** Longest path of a Unix socket that every system takes. */
const longestSocketPath = 100;
/** A process that lives answers on its socket in a moment. Milliseconds. */
const answerWithin = 2_000;

/**
 * The folder of one router: its name for good, its settlement log, and a socket that says that a process lives in it. It
 * belongs to one process at a time; a socket left by a killed one is nobody's.
 */
export class RouterFolder {
  private constructor(
    readonly path: string,
    /** Names the router at identity-billing. UUID. */
    readonly routerId: string,
    private readonly server: Server,
  ) {}

  /**
   * Makes the folder where it is missing, and takes it for this process.
   * @throws ConfigError when another process has it
   */
  static async take(path: string): Promise<RouterFolder> {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    const socket = socketOf(realpathSync(path));
    const token = `${process.pid} ${randomUUID()}`;
    const server = await claim(socket, token, (owner) => {
      const pid = owner.split(' ', 1)[0];
      return new ConfigError(
        `${path} is in use by process ${pid}; each router needs a folder of its own (NEBO_INFERENCE_DIR)`,
      );
    });
    return new RouterFolder(path, readRouterId(path), server);
  }

  async release(): Promise<void> {
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** A path that is too long for a socket gets one elsewhere, named by the folder. */
function socketOf(folder: string): string {
  const inside = join(folder, 'alive.sock');
  if (Buffer.byteLength(inside) <= longestSocketPath) return inside;
  return join(tmpdir(), `nebo-router-${createHash('sha256').update(folder).digest('hex').slice(0, 16)}.sock`);
}

/**
 * Listens on the folder's name. Only one can have it; what a killed process left is moved away first, and looked at again
 * then: meanwhile another may have listened there.
 * @throws what `inUse` makes when a process lives there
 */
async function claim(socket: string, token: string, inUse: (owner: string) => Error): Promise<Server> {
  for (let tries = 0; tries < 20; tries += 1) {
    try {
      return await listen(socket, token);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    }
    const owner = await askOwner(socket);
    if (owner !== null) throw inUse(owner);
    const aside = join(dirname(socket), `.${randomUUID().slice(0, 8)}`);
    if (!succeeds(() => renameSync(socket, aside))) continue;
    const moved = await askOwner(aside);
    // One that had just begun gets its name back, unless a third has it by now.
    if (moved !== null) succeeds(() => linkSync(aside, socket));
    rmSync(aside, { force: true });
    if (moved !== null) throw inUse(moved);
  }
  throw inUse('(unknown)');
}

function succeeds(work: () => void): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

/** @returns what the process behind a socket says, or null when there is none */
function askOwner(socket: string): Promise<string | null> {
  return new Promise((resolve) => {
    const client = connect(socket);
    let text = '';
    client.setTimeout(answerWithin, () => client.destroy());
    client.on('data', (data) => (text += data.toString()));
    client.on('error', () => resolve(null));
    // One that accepts and says nothing lives all the same.
    client.on('close', (hadError) => resolve(hadError ? null : text || '(unknown)'));
  });
}

function listen(socket: string, token: string): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer((client) => {
      client.on('error', () => undefined);
      client.end(token);
    });
    server.once('error', reject);
    server.listen(socket, () => resolve(server));
    server.unref();
  });
}

function readRouterId(folder: string): string {
  const file = join(folder, 'router-id');
  if (!existsSync(file)) {
    // Whole or not at all: a name that a crash cut in half would lose the router its slices.
    writeFileSync(`${file}.new`, `${randomUUID()}\n`, { mode: 0o600, flush: true });
    renameSync(`${file}.new`, file);
  }
  const id = readFileSync(file, 'utf8').trim();
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id))
    throw new ConfigError(`${file} does not hold the name of a router; restore it, or remove the folder`);
  return id;
}
