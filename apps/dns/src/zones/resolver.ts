import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import { type DecodedPacket, decode, encode, RECURSION_DESIRED, streamEncode } from 'dns-packet';

/** Where a resolver listens. */
export interface Server {
  host: string;
  port: number;
}

/** How long one try may take, milliseconds; a caller of verify waits for it. */
const tryMs = 2_000;
const tries = 2;
/** Most bytes of an answer over TCP. */
const maxAnswer = 65_537;

/**
 * One question to a resolver: over UDP, again when nothing comes, over TCP when the answer was cut.
 * @throws Error with what went wrong, for people
 */
export async function askResolver(server: Server, name: string, type: 'NS' | 'A'): Promise<DecodedPacket> {
  let last = new Error('no answer');
  for (let attempt = 0; attempt < tries; attempt += 1) {
    const query = {
      type: 'query' as const,
      id: randomInt(65_536),
      flags: RECURSION_DESIRED,
      questions: [{ type, name }],
    };
    try {
      const answer = await overUdp(server, encode(query), query.id, name);
      return answer.flag_tc ? await overTcp(server, streamEncode(query), query.id) : answer;
    } catch (error) {
      last = error as Error;
    }
  }
  throw new Error(`${server.host}:${server.port} ${last.message}`);
}

/** An answer counts only when it repeats id and question: anybody may send packets to this port. */
function overUdp({ host, port }: Server, query: Buffer, id: number, name: string): Promise<DecodedPacket> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(isIPv6(host) ? 'udp6' : 'udp4');
    const end = (work: () => void) => {
      clearTimeout(limit);
      socket.close();
      work();
    };
    const limit = setTimeout(() => end(() => reject(new Error('does not answer'))), tryMs);
    socket.once('error', (error: NodeJS.ErrnoException) =>
      end(() => reject(new Error(`cannot be asked (${error.code})`))),
    );
    // A connected socket hears its peer only.
    socket.connect(port, host, () => {
      socket.on('message', (bytes) => {
        const answer = readAnswer(bytes, id, name);
        if (answer) end(() => resolve(answer));
      });
      socket.send(query);
    });
  });
}

function readAnswer(bytes: Buffer, id: number, name: string): DecodedPacket | null {
  try {
    const answer = decode(bytes);
    const asked = answer.questions?.[0]?.name.toLowerCase();
    return answer.type === 'response' && answer.id === id && `${asked}.` === name ? answer : null;
  } catch {
    return null;
  }
}

function overTcp({ host, port }: Server, query: Buffer, id: number): Promise<DecodedPacket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port });
    let received = Buffer.alloc(0);
    const end = (work: () => void) => {
      clearTimeout(limit);
      socket.destroy();
      work();
    };
    const limit = setTimeout(() => end(() => reject(new Error('does not answer over TCP'))), tryMs);
    socket.once('error', (error: NodeJS.ErrnoException) =>
      end(() => reject(new Error(`cannot be asked over TCP (${error.code})`))),
    );
    socket.once('end', () => end(() => reject(new Error('broke off its answer over TCP'))));
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]).subarray(0, maxAnswer);
      if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) return;
      try {
        const answer = decode(received.subarray(2));
        if (answer.id === id) end(() => resolve(answer));
        else end(() => reject(new Error('answered another question')));
      } catch {
        end(() => reject(new Error('sent an answer that is no DNS message')));
      }
    });
    socket.write(query);
  });
}
