/** Bytes of a picture that are looked at: the size of a JPEG may stand behind its profile and preview. */
const headBytes = 96 * 1024;

/**
 * How many pixels a picture has, by the head of its bytes; null for a link, and where the head does not tell.
 * @param url a link, or a `data:` URI in base64
 */
export function pixelsOf(url: string): number | null {
  const comma = url.indexOf(',');
  if (!url.startsWith('data:') || comma === -1) return null;
  const head = Buffer.from(url.slice(comma + 1, comma + 1 + (headBytes / 3) * 4), 'base64');
  try {
    const size = sizeOf(head);
    return size && size[0] * size[1] > 0 ? size[0] * size[1] : null;
  } catch {
    // The head ended too early: nothing else can fail here.
    return null;
  }
}

function sizeOf(head: Buffer): [width: number, height: number] | null {
  const kind = head.toString('latin1', 0, 4);
  if (kind === '\x89PNG') return [head.readUInt32BE(16), head.readUInt32BE(20)];
  if (kind === 'GIF8') return [head.readUInt16LE(6), head.readUInt16LE(8)];
  if (kind === 'RIFF') return sizeOfWebp(head);
  return head.readUInt16BE(0) === 0xffd8 ? sizeOfJpeg(head) : null;
}

function sizeOfWebp(head: Buffer): [number, number] | null {
  switch (head.toString('latin1', 12, 16)) {
    case 'VP8X':
      return [head.readUIntLE(24, 3) + 1, head.readUIntLE(27, 3) + 1];
    case 'VP8L': {
      const bits = head.readUInt32LE(21);
      return [(bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1];
    }
    case 'VP8 ':
      return [head.readUInt16LE(26) & 0x3fff, head.readUInt16LE(28) & 0x3fff];
    default:
      return null;
  }
}

/** The size stands in the frame's header, behind other segments of any length. */
function sizeOfJpeg(head: Buffer): [number, number] | null {
  for (let at = 2; ;) {
    if (head.readUInt8(at) !== 0xff) return null;
    const marker = head.readUInt8(at + 1);
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return [head.readUInt16BE(at + 7), head.readUInt16BE(at + 5)];
    at += marker === 0xff ? 1 : 2 + head.readUInt16BE(at + 2);
  }
}
