/** What a piece of text turned out to be. */
export interface SplitText {
  reasoning: string;
  content: string;
  /** The reasoning is over: all that follows is content. */
  isOver: boolean;
}

const opening = '<think>';
const closing = '</think>';
/** So much of blanks may stand before a tag; more is the answer itself, and would be looked through again with each piece. */
const mostBlank = 1_024;

/**
 * Takes reasoning out of a text that begins with `<think>`, where a host leaves it when it does not know the field that
 * splits the two. Only the beginning of an answer can be such a tag; later ones are the model's words. A tag may be cut
 * into pieces anywhere, so what could be the beginning of one is kept back.
 */
export class ThinkTags {
  private place: 'before' | 'inside' | 'gap' = 'before';
  private kept = '';

  /** @param isLast nothing follows: what is kept back goes out */
  feed(piece: string, isLast: boolean): SplitText {
    const text = this.kept + piece;
    this.kept = '';
    if (this.place === 'before') return this.before(text, isLast);
    return this.place === 'inside' ? this.inside(text, isLast) : this.gap(text, isLast);
  }

  private before(text: string, isLast: boolean): SplitText {
    const start = text.trimStart();
    if (start.startsWith(opening)) {
      this.place = 'inside';
      return this.inside(start.slice(opening.length).replace(/^\n/, ''), isLast);
    }
    if (!isLast && opening.startsWith(start) && text.length <= mostBlank) {
      this.kept = text;
      return { reasoning: '', content: '', isOver: false };
    }
    return { reasoning: '', content: text, isOver: true };
  }

  private inside(text: string, isLast: boolean): SplitText {
    const end = text.indexOf(closing);
    if (end !== -1) {
      this.place = 'gap';
      return { ...this.gap(text.slice(end + closing.length), isLast), reasoning: text.slice(0, end) };
    }
    const safe = isLast ? text.length : text.length - overlap(text);
    this.kept = text.slice(safe);
    return { reasoning: text.slice(0, safe), content: '', isOver: isLast };
  }

  /** The blank lines between reasoning and text belong to neither. */
  private gap(text: string, isLast: boolean): SplitText {
    const content = text.replace(/^\s+/, '');
    return { reasoning: '', content, isOver: isLast || content !== '' };
  }
}

/** How many of the last characters could be the beginning of the closing tag. */
function overlap(text: string): number {
  for (let length = Math.min(closing.length - 1, text.length); length > 0; length -= 1) {
    if (closing.startsWith(text.slice(-length))) return length;
  }
  return 0;
}
