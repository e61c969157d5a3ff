/** An image by name, as it is asked for at its registry. */
export interface ImageReference {
  /** `host` or `host:port`, lower case. */
  registry: string;
  /** Path of the repository at its registry, e.g. `library/nginx`. */
  repository: string;
  /** What the name says, or `latest`; null when only a digest is named. */
  tag: string | null;
  /** `sha256:` and 64 lower-case hex digits; it decides when a tag is named too. */
  digest: string | null;
}

/** A text that is no reference; `message` says why, as the end of a sentence that begins with the text or the field. */
export class InvalidImageReference extends Error {
  override readonly name = 'InvalidImageReference';
}

/** What a name without a registry means, and the folder of its official images there. */
export const defaultRegistry = 'docker.io';
const officialFolder = 'library';
/** Other spellings of the default registry. */
const defaultSpellings: ReadonlySet<string> = new Set([defaultRegistry, `index.${defaultRegistry}`]);

const hostName = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;
const component = /^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$/;
const tagForm = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const digestForm = /^sha256:[0-9a-f]{64}$/;

/**
 * Reads `[registry[:port]/]name[:tag][@digest]` as its users know it: the first part is a registry when it has a dot or a
 * colon or is `localhost`, a name without one is the default registry's, a name of a single part there is an official image,
 * and neither tag nor digest means `latest`.
 * @throws InvalidImageReference
 */
export function parseImageReference(text: string): ImageReference {
  if (text === '') throw new InvalidImageReference('must not be empty');
  if (text.length > 500) throw new InvalidImageReference('must have at most 500 characters');
  if (/\s/.test(text)) throw new InvalidImageReference('must not have spaces');
  if (/^[a-z]+:\/\//i.test(text))
    throw new InvalidImageReference('must be the name of an image, without https:// before it');
  const at = text.indexOf('@');
  const digest = at < 0 ? null : digestOf(text.slice(at + 1));
  const named = at < 0 ? text : text.slice(0, at);
  const colon = named.indexOf(':', named.lastIndexOf('/') + 1);
  const tag = colon < 0 ? null : tagOf(named.slice(colon + 1));
  const path = colon < 0 ? named : named.slice(0, colon);
  const first = path.split('/', 1)[0]!;
  const hasRegistry = path.includes('/') && (/[.:[]/.test(first) || first.toLowerCase() === 'localhost');
  const registry = hasRegistry ? registryOf(first) : defaultRegistry;
  const repository = repositoryOf(hasRegistry ? path.slice(first.length + 1) : path);
  const isOfficial = registry === defaultRegistry && !repository.includes('/');
  return {
    registry,
    repository: isOfficial ? `${officialFolder}/${repository}` : repository,
    tag: tag ?? (digest === null ? 'latest' : null),
    digest,
  };
}

function digestOf(text: string): string {
  if (digestForm.test(text)) return text;
  throw new InvalidImageReference(
    'must have a digest of the form sha256: and 64 lower-case hex digits behind the @',
  );
}

function tagOf(text: string): string {
  if (tagForm.test(text)) return text;
  throw new InvalidImageReference(
    'must have a tag of letters, digits, ".", "_" and "-" behind the colon, at most 128 of them',
  );
}

function registryOf(text: string): string {
  const match = /^(.*?)(?::(\d{1,5}))?$/.exec(text.toLowerCase())!;
  const host = match[1]!;
  const port = match[2] === undefined ? null : Number(match[2]);
  if (host.length > 253 || !hostName.test(host) || (port !== null && (port < 1 || port > 65_535)))
    throw new InvalidImageReference(`names a registry "${text.slice(0, 100)}" that is no host and port`);
  if (port === null && defaultSpellings.has(host)) return defaultRegistry;
  return port === null ? host : `${host}:${port}`;
}

function repositoryOf(text: string): string {
  if (text === '') throw new InvalidImageReference('must name an image behind the registry');
  if (text.length > 255) throw new InvalidImageReference('must name an image with at most 255 characters');
  if (text !== text.toLowerCase())
    throw new InvalidImageReference('must be in lower case (tags may have capitals)');
  if (!text.split('/').every((part) => component.test(part)))
    throw new InvalidImageReference(
      'must be the name of an image: parts of lower-case letters and digits, with ".", "_" or "-" between them',
    );
  return text;
}

/** The reference in full, e.g. for a log: `registry/name:tag@digest`. */
export function imageReferenceText({ registry, repository, tag, digest }: ImageReference): string {
  return `${registry}/${repository}${tag === null ? '' : `:${tag}`}${digest === null ? '' : `@${digest}`}`;
}
