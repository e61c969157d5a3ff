/** Every rule by which an archive is refused (reliability.md section 7). */
export const archiveRules = [
  'empty_body',
  'not_gzip',
  'corrupt',
  'truncated',
  'trailing_data',
  'second_member',
  'empty_archive',
  'compressed_size',
  'expanded_size',
  'ratio',
  'entries',
  'stalled',
  'header_size',
  'bad_header',
  'size_field',
  'sparse',
  'entry_type',
  'set_id_bits',
  'path_empty',
  'path_encoding',
  'path_control',
  'path_absolute',
  'path_parent',
  'path_length',
  'path_depth',
  'path_override',
  'duplicate_path',
  'path_collision',
  'path_through_file',
  'path_through_link',
  'link_outside',
  'link_through_link',
  'link_target',
] as const;

export type ArchiveRule = (typeof archiveRules)[number];

const tooBig: ReadonlySet<ArchiveRule> = new Set<ArchiveRule>([
  'compressed_size',
  'expanded_size',
  'ratio',
  'entries',
]);

/** The whole archive is refused. `message` is public: it names the rule broken, the entry, and what to do. */
export class ArchiveRefused extends Error {
  /** 413 when the archive is too big, otherwise 422. */
  readonly status: 413 | 422;

  constructor(
    readonly rule: ArchiveRule,
    what: string,
    /** The entry's path, made printable and cut at 200 characters. */
    readonly entry?: string,
  ) {
    super(
      entry === undefined ? `The archive is refused: ${what}` : `The archive is refused: "${entry}" ${what}`,
    );
    this.name = 'ArchiveRefused';
    this.status = tooBig.has(rule) ? 413 : 422;
  }
}

/** A path as it may stand in a message: no control characters, at most 200 characters. */
export function printable(path: string): string {
  // eslint-disable-next-line no-control-regex
  const clean = path.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
  return clean.length > 200 ? `${clean.slice(0, 197)}...` : clean;
}
