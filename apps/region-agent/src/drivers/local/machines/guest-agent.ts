import { randomInt } from 'node:crypto';
import { JsonSocket } from './json-socket.js';

/** The guest's side is the user's: nothing that it says is believed further than its form, and no answer is waited for long. */
export class GuestAgent {
  private constructor(private readonly socket: JsonSocket) {}

  /**
   * Opens the channel and makes sure that somebody answers there.
   * @returns null when nobody does
   */
  static async with<T>(path: string, work: (agent: GuestAgent) => Promise<T>, ms = 1_500): Promise<T | null> {
    const socket = await JsonSocket.open(path).catch(() => null);
    if (!socket) return null;
    try {
      // An answer with this number cannot be one that an earlier agent of the region did not wait for.
      const id = randomInt(1, 2 ** 31);
      const synced = socket.next((message) => message['return'] === id, ms);
      const words = JSON.stringify({ execute: 'guest-sync-delimited', arguments: { id } });
      socket.send(Buffer.concat([Buffer.from([0xff]), Buffer.from(`${words}\n`)]));
      if ((await synced.catch(() => null)) === null) return null;
      return await work(new GuestAgent(socket));
    } finally {
      socket.close();
    }
  }

  /** @throws Error when it refuses or says nothing */
  async execute(command: string, args: Record<string, unknown> = {}, ms = 5_000): Promise<unknown> {
    const answer = this.socket.next((message) => 'return' in message || 'error' in message, ms);
    this.tell(command, args);
    const { error, return: result } = await answer;
    if (error !== undefined) throw new Error(`the guest agent refused ${command}`);
    return result;
  }

  /** For what is not answered, as a shutdown. */
  tell(command: string, args: Record<string, unknown> = {}): void {
    this.socket.send(`${JSON.stringify({ execute: command, arguments: args })}\n`);
  }
}
