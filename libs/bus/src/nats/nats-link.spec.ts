import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { until } from '../../test/bus.contract.js';
import { NatsBus } from './nats-bus.js';

/** How a server answers that is played here: a cluster without a leader, one that refuses the login, one that is well. */
type Mood = 'no leader' | 'refuses' | 'well';

const answers = {
  'no leader': {
    error: { code: 503, err_code: 10_008, description: 'JetStream system temporarily unavailable' },
  },
  well: { config: { name: 'NEBO' }, created: '2026-01-01T00:00:00Z', state: { messages: 0 } },
};

/** As much of a NATS server as the bus needs to get its link. */
class PlayedServer {
  mood: Mood = 'no leader';
  asked = 0;
  refused = 0;
  private readonly sockets = new Set<Socket>();
  private readonly server = createServer((socket) => this.take(socket));

  async listen(): Promise<string> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return `nats://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.cut();
    this.server.close();
  }

  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  private take(socket: Socket): void {
    this.sockets.add(socket);
    socket.on('close', () => this.sockets.delete(socket)).on('error', () => undefined);
    socket.write('INFO {"server_id":"x","version":"2.9.10","proto":1,"max_payload":1048576}\r\n');
    let inbox = '';
    socket.on('data', (data) => {
      for (const line of data.toString('latin1').split('\r\n')) {
        const [word, subject, second] = line.split(' ');
        if (word === 'CONNECT' && this.mood === 'refuses') {
          this.refused += 1;
          socket.end("-ERR 'Authorization Violation'\r\n");
        } else if (word === 'PING') socket.write('PONG\r\n');
        else if (word === 'SUB' && subject!.startsWith('_INBOX')) inbox = second!;
        else if (word === 'PUB' && subject!.startsWith('$JS.API') && this.mood !== 'refuses') {
          this.asked += 1;
          const text = JSON.stringify(answers[this.mood]);
          socket.write(`MSG ${second} ${inbox} ${text.length}\r\n${text}\r\n`);
        }
      }
    });
  }
}

describe('the link of the NATS bus', () => {
  it('comes when the login was refused while the stream could not be looked at', async () => {
    const server = new PlayedServer();
    const bus = new NatsBus({ servers: await server.listen() });
    try {
      // By now it waits for a second or more before it looks again.
      await until('five looks at the stream', () => server.asked >= 5);
      server.mood = 'refuses';
      server.cut();
      await until('two refusals, after which the client gives up', () => server.refused >= 2);
      server.mood = 'well';
      await until('the link', () => bus.status().connected, 12_000);
    } finally {
      server.close();
      await bus.close();
    }
  });
});
