/** Asks DHCP once, as a host without an address does, and prints the address that it is offered, or "none" after 3 s. */
import { createSocket } from 'node:dgram';

const mac = process.argv[2].split(':').map((pair) => parseInt(pair, 16));
const xid = Buffer.from([9, 9, mac[4], mac[5]]);
const question = Buffer.alloc(300);
question.set([1, 1, 6, 0]);
question.set(xid, 4);
question.writeUInt16BE(0x8000, 10); // answer by broadcast
question.set(mac, 28);
question.set([99, 130, 83, 99, 53, 1, 1, 255], 236);
const socket = createSocket('udp4');
const say = (text) => {
  process.stdout.write(text);
  process.exit(0);
};
socket.on('message', (answer) => {
  if (answer[0] === 2 && answer.subarray(4, 8).equals(xid)) say([...answer.subarray(16, 20)].join('.'));
});
socket.bind(68, '0.0.0.0', () => {
  socket.setBroadcast(true);
  const ask = () => socket.send(question, 67, '255.255.255.255', () => undefined);
  ask();
  setInterval(ask, 700);
  setTimeout(() => say('none'), 3_000);
});
