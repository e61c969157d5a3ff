/**
 * A DHCP client without an address. `<mac>`: prints the address that it is offered, or "none" after 3 s. `<mac> take`: takes
 * the offer too, `<mac> resolvers` prints the DNS resolvers of the offer by comma. `<mac> <address>`: asks to keep an address as
 * after a restart, prints it, or "refused".
 */
import { createSocket } from 'node:dgram';

const mac = process.argv[2].split(':').map((pair) => parseInt(pair, 16));
const want = process.argv[3] ?? 'look';
const xid = Buffer.from([9, 9, mac[4], mac[5]]);
const [discover, offer, request, ack, nak] = [1, 2, 3, 5, 6];

function message(type, options = []) {
  const text = Buffer.alloc(300);
  text.set([1, 1, 6, 0]);
  text.set(xid, 4);
  text.writeUInt16BE(0x8000, 10); // answer by broadcast
  text.set(mac, 28);
  text.set([99, 130, 83, 99, 53, 1, type, ...options, 255], 236);
  return text;
}

/** An option of an answer. */
function option(answer, wanted) {
  for (let at = 240; answer[at] !== 255 && at < answer.length; at += 2 + answer[at + 1])
    if (answer[at] === wanted) return [...answer.subarray(at + 2, at + 2 + answer[at + 1])];
  return [];
}

const socket = createSocket('udp4');
const say = (text) => {
  process.stdout.write(text);
  process.exit(0);
};
let asked = message(discover);
if (want.includes('.')) asked = message(request, [50, 4, ...want.split('.').map(Number)]);
const ask = () => socket.send(asked, 67, '255.255.255.255', () => undefined);
socket.on('message', (answer) => {
  if (answer[0] !== 2 || !answer.subarray(4, 8).equals(xid)) return;
  const [type] = option(answer, 53);
  const address = [...answer.subarray(16, 20)];
  if (type === nak) say('refused');
  if (want === 'resolvers')
    say(
      option(answer, 6)
        .map((byte, at) => `${byte}${at % 4 < 3 ? '.' : ','}`)
        .join('')
        .slice(0, -1) || 'none',
    );
  if (type === ack || (type === offer && want === 'look')) say(address.join('.'));
  if (type !== offer) return;
  asked = message(request, [50, 4, ...address, 54, 4, ...option(answer, 54)]);
  ask();
});
socket.bind(68, '0.0.0.0', () => {
  socket.setBroadcast(true);
  ask();
  setInterval(ask, 700);
  setTimeout(() => say('none'), 3_000);
});
