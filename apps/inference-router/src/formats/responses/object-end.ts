/** Finds the end of a JSON object that comes in pieces, without reading any of them twice. */
export class ObjectEnd {
  /** Has the object ended? */
  isReached = false;
  private depth = 0;
  private isString = false;
  private isEscaped = false;

  push(piece: string): void {
    for (let at = 0; at < piece.length && !this.isReached; at += 1) this.take(piece[at]!);
  }

  private take(char: string): void {
    if (this.isString) {
      if (this.isEscaped) this.isEscaped = false;
      else if (char === '\\') this.isEscaped = true;
      else if (char === '"') this.isString = false;
    } else if (char === '"') this.isString = true;
    else if (char === '{' || char === '[') this.depth += 1;
    else if (char === '}' || char === ']') {
      this.depth -= 1;
      this.isReached = this.depth <= 0;
    }
  }
}
