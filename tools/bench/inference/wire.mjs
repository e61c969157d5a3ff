/**
 * Reads HTTP/1.1 messages off a socket with as little work as can be: the generator and the upstream share a core with each
 * other, and what they use must not decide the figures. Knows content-length and chunked bodies, which is all that the parts
 * of the bench send.
 */
const cr = 13;
const lf = 10;
const colon = 59; // ';', where extensions of a chunk's size begin

export class MessageReader {
  /**
   * @param {{ onHead?: (head: string) => void, onData?: (data: Buffer) => void, onEnd: () => void }} on
   */
  constructor(on) {
    this.on = on;
    /** @type {Buffer | null} what is left of a head or a chunk's size that came in parts */
    this.rest = null;
    this.state = 'head';
    this.left = 0;
  }

  /** @param {Buffer} data bytes of the socket as they come */
  push(data) {
    let at = 0;
    if (this.rest) {
      data = Buffer.concat([this.rest, data]);
      this.rest = null;
    }
    while (at < data.length) {
      if (this.state === 'head') {
        const end = data.indexOf('\r\n\r\n', at);
        if (end < 0) return this.keep(data, at);
        this.begin(data.toString('latin1', at, end + 2));
        at = end + 4;
        if (this.state === 'body' && this.left === 0) this.finish();
      } else if (this.state === 'size') {
        const end = data.indexOf(lf, at);
        if (end < 0) return this.keep(data, at);
        this.left = sizeAt(data, at);
        at = end + 1;
        this.state = this.left === 0 ? 'trailer' : 'chunk';
      } else if (this.state === 'trailer') {
        const end = data.indexOf(lf, at);
        if (end < 0) return this.keep(data, at);
        const isEmpty = end === at || (end === at + 1 && data[at] === cr);
        at = end + 1;
        if (isEmpty) this.finish();
      } else if (this.state === 'gap') {
        // The line's end after a chunk.
        if (data[at] === lf) this.state = 'size';
        at += 1;
      } else {
        const take = Math.min(this.left, data.length - at);
        this.on.onData?.(data.subarray(at, at + take));
        at += take;
        this.left -= take;
        if (this.left > 0) continue;
        if (this.state === 'chunk') this.state = 'gap';
        else this.finish();
      }
    }
  }

  keep(data, at) {
    this.rest = data.subarray(at);
  }

  begin(head) {
    const length = /\r\ncontent-length: *(\d+)/i.exec(head);
    if (/\r\ntransfer-encoding: *chunked/i.test(head)) this.state = 'size';
    else {
      this.state = 'body';
      this.left = length ? Number(length[1]) : 0;
    }
    this.on.onHead?.(head);
  }

  finish() {
    this.state = 'head';
    this.on.onEnd();
  }
}

/** The hexadecimal number at a place. */
function sizeAt(data, at) {
  let size = 0;
  for (; at < data.length; at += 1) {
    const code = data[at];
    if (code === cr || code === lf || code === colon) break;
    size = size * 16 + (code <= 57 ? code - 48 : (code | 32) - 87);
  }
  return size;
}
