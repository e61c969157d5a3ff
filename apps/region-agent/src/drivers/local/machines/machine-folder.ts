import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type StoredImage } from './image-store.js';

/** What is kept of a machine beside its disk. Names, keys and user data are not: its seed alone has them. */
export interface KeptMachine {
  id: string;
  /** The user as which its QEMU runs, nobody else's on this host. */
  uid: number;
  /** What its disk stands on, and how it is started. */
  image: StoredImage;
  restored: number;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
  /** Whether it ought to run: one that does not then has ended by itself. */
  wanted: 'running' | 'stopped';
  boot: number;
  started_at: string | null;
  process: { pid: number; start: string } | null;
  /** Doors into VPCs that were made for it. */
  ports: { vpc_id: string; id: string }[];
  /** When it ended by itself, milliseconds since 1970; the latest few. */
  ends: number[];
}

/** Files of one machine: on disk what must last, under /run what goes with its process. */
export interface MachinePaths {
  dir: string;
  disk: string;
  seed: string;
  serial: string;
  /** QEMU's whole file system once it has opened its files. */
  jail: string;
  run: string;
  /** The two monitors: one for words, one for a backup, which takes long. */
  monitor: string;
  jobs: string;
  agent: string;
  console: string;
  /** What QEMU itself complains of. */
  log: string;
}

/** The folders of all machines of an agent. */
export class MachineFolders {
  /**
   * @param root folder of disks
   * @param runRoot folder of sockets, short: a socket's path has at most 107 bytes
   */
  constructor(
    private readonly root: string,
    private readonly runRoot: string,
  ) {}

  async start(): Promise<void> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    await mkdir(this.runRoot, { recursive: true, mode: 0o700 });
  }

  paths(id: string): MachinePaths {
    const [dir, run] = [join(this.root, id), join(this.runRoot, id)];
    return {
      dir,
      disk: join(dir, 'disk.qcow2'),
      seed: join(dir, 'seed.img'),
      serial: join(dir, 'serial.log'),
      jail: join(dir, 'jail'),
      run,
      monitor: join(run, 'monitor'),
      jobs: join(run, 'jobs'),
      agent: join(run, 'agent'),
      console: join(run, 'console'),
      log: join(run, 'qemu.log'),
    };
  }

  /** Ids of all folders, half-made ones too. */
  async ids(): Promise<string[]> {
    const lists = await Promise.all([this.root, this.runRoot].map((dir) => readdir(dir).catch(() => [])));
    return [...new Set(lists.flat())].filter(isMachineId);
  }

  /** Null: half made, or nothing. */
  async read(id: string): Promise<KeptMachine | null> {
    try {
      return JSON.parse(await readFile(join(this.paths(id).dir, 'machine.json'), 'utf8')) as KeptMachine;
    } catch {
      return null;
    }
  }

  /** The machine counts as made once this is there. */
  async write(kept: KeptMachine): Promise<void> {
    const file = join(this.paths(kept.id).dir, 'machine.json');
    await writeFile(`${file}.new`, JSON.stringify(kept), { mode: 0o600 });
    await rename(`${file}.new`, file);
  }

  async make(id: string): Promise<void> {
    const { dir, jail } = this.paths(id);
    await mkdir(dir, { recursive: true, mode: 0o700 });
    // QEMU looks up names in it as its own user.
    await mkdir(jail, { recursive: true, mode: 0o711 });
  }

  async remove(id: string): Promise<void> {
    const { dir, run } = this.paths(id);
    await rm(run, { recursive: true, force: true });
    // First what makes it a machine: half of a folder is then known as such.
    await rm(join(dir, 'machine.json'), { force: true });
    await rm(dir, { recursive: true, force: true });
  }
}

/** Ids become names on this host: anything else is refused. */
export const isMachineId = (id: string): boolean => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id);
