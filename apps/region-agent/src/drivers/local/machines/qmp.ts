import { JsonSocket, type Message } from './json-socket.js';

/** QEMU's monitor. It serves one connection at a time, so a connection is opened for some words and closed again. */
export class Qmp {
  private number = 0;

  private constructor(private readonly socket: JsonSocket) {}

  /** @throws Error when no machine listens at the path, or another connection has its monitor */
  static async with<T>(path: string, work: (qmp: Qmp) => Promise<T>): Promise<T> {
    const socket = await JsonSocket.open(path);
    try {
      await socket.next((message) => 'QMP' in message, 5_000);
      const qmp = new Qmp(socket);
      await qmp.execute('qmp_capabilities');
      return await work(qmp);
    } finally {
      socket.close();
    }
  }

  /** @throws Error with QEMU's words when it refuses */
  async execute(command: string, args: Message = {}, ms = 10_000): Promise<unknown> {
    const id = ++this.number;
    const answer = this.socket.next((message) => message['id'] === id, ms);
    this.socket.send(`${JSON.stringify({ execute: command, arguments: args, id })}\n`);
    const { error, return: result } = await answer;
    if (error !== undefined) throw new Error(`${command}: ${(error as { desc?: string }).desc ?? 'refused'}`);
    return result;
  }
}
