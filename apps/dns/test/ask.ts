import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import { type DecodedPacket, decode, encode, type RecordType } from 'dns-packet';

/** What a resolver sees; the library's types leave the code out. */
export type Reply = DecodedPacket & { rcode: string };

/** Options of a question. */
export interface Ask {
  type?: RecordType;
  /** Advertised size over UDP, bytes; null: without EDNS. */
  edns?: number | null;
  /** Raw flags beside the library's; 0x0100 is "recursion desired". */
  flags?: number;
}

/** The bytes of a question. */
export function question(name: string, { type = 'A', edns = null, flags = 0 }: Ask = {}): Buffer {
  return encode({
    type: 'query',
    id: Math.floor(Math.random() * 65_536),
    flags,
    questions: [{ type, name }],
    ...(edns === null
      ? {}
      : {
          additionals: [
            {
              type: 'OPT' as const,
              name: '.',
              udpPayloadSize: edns,
              extendedRcode: 0,
              ednsVersion: 0,
              flags: 0,
              flag_do: false,
              options: [],
            },
          ],
        }),
  });
}

/** Sends bytes over UDP. @returns the answer's bytes, or null when none comes in time */
export function sendUdp(port: number, bytes: Buffer, ms = 5_000, host = '127.0.0.1'): Promise<Buffer | null> {
  return new Promise((resolve, reject) => {
    const socket = createSocket('udp4');
    const end = (answer: Buffer | null) => {
      clearTimeout(limit);
      socket.close();
      resolve(answer);
    };
    const limit = setTimeout(() => end(null), ms);
    socket.once('error', reject);
    socket.once('message', end);
    socket.send(bytes, port, host);
  });
}

/** Sends questions over one TCP connection. @returns as many answers as came before the connection ended */
export function sendTcp(port: number, questions: Buffer[], ms = 5_000): Promise<Buffer[]> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1' });
    const answers: Buffer[] = [];
    let received = Buffer.alloc(0);
    const end = () => {
      clearTimeout(limit);
      socket.destroy();
      resolve(answers);
    };
    const limit = setTimeout(end, ms);
    socket.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'ECONNRESET' ? end() : reject(error),
    );
    socket.once('end', end);
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
        const length = received.readUInt16BE(0);
        answers.push(Buffer.from(received.subarray(2, 2 + length)));
        received = received.subarray(2 + length);
      }
      if (answers.length >= questions.length) end();
    });
    for (const bytes of questions) {
      const head = Buffer.alloc(2);
      head.writeUInt16BE(bytes.length);
      socket.write(Buffer.concat([head, bytes]));
    }
  });
}

/** A question over UDP. @throws Error when no answer comes */
export async function ask(port: number, name: string, options: Ask = {}): Promise<Reply> {
  const bytes = await sendUdp(port, question(name, options));
  if (!bytes) throw new Error(`no answer about ${name}`);
  return decode(bytes) as Reply;
}

/** A question over TCP. */
export async function askTcp(port: number, name: string, options: Ask = {}): Promise<Reply> {
  const [bytes] = await sendTcp(port, [question(name, options)]);
  if (!bytes) throw new Error(`no answer about ${name} over TCP`);
  return decode(bytes) as Reply;
}

/** Data of the answer section, as text, sorted. */
export const dataOf = (reply: Reply): string[] =>
  (reply.answers ?? [])
    .map((record) =>
      'data' in record ? (typeof record.data === 'string' ? record.data : JSON.stringify(record.data)) : '',
    )
    .sort();
