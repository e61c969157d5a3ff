import {
  type ImageReference,
  InvalidImageReference,
  parseImageReference,
} from '@nebo/contracts/image-reference';
import { type AllowList, checkAddress, checkUrl, defaultLookup, SafeNetRefused } from '@nebo/safe-net';
import { BuildFailure } from '../builds/tree.js';
import { told } from '../images/image-failure.js';
import { registryPorts } from '../images/registry.js';
import { type EngineClient, EngineRefused } from './client.js';
import { checkTriggers } from './dockerfile.js';
import { ProgressReader } from './progress.js';

export interface BaseParts {
  client: EngineClient;
  allow: AllowList;
  signal: AbortSignal;
  output(chunk: Buffer): void;
}

interface Inspected {
  Config?: { OnBuild?: string[] | null } | null;
}

/**
 * Has the engine pull an image that a build stands on, unless it is there. The engine pulls from its own network, so registries at
 * private addresses are refused first, as for all that strangers name.
 * @throws BuildFailure with a sentence for the user
 */
export async function pullBase(image: string, parts: BaseParts): Promise<void> {
  // First of all: Podman takes names of files and folders of its host for images too (`dir:/etc`).
  const reference = referenceOf(image);
  const found = (await inspect(image, parts)) ?? (await pulled(image, reference, parts));
  checkTriggers(told(image), found.Config?.OnBuild ?? []);
}

async function inspect(image: string, { client, signal }: BaseParts): Promise<Inspected | null> {
  try {
    return await client.json<Inspected>('GET', `/images/${encodeName(image)}/json`, { signal });
  } catch (error) {
    if (error instanceof EngineRefused && error.status === 404) return null;
    throw error;
  }
}

async function pulled(image: string, reference: ImageReference, parts: BaseParts): Promise<Inspected> {
  const { client, signal } = parts;
  const { registry, repository, tag, digest } = reference;
  await checkRegistry(registry, parts.allow, signal);
  parts.output(Buffer.from(`pulling ${image}\n`));
  let problem: string | null = null;
  const reader = new ProgressReader({
    text: (text) => parts.output(Buffer.from(text)),
    image: () => undefined,
    step: () => undefined,
    error: (message) => (problem = message),
  });
  try {
    const query = { fromImage: `${registry}/${repository}`, tag: digest ?? tag ?? 'latest' };
    const answer = await client.open('POST', '/images/create', { query, signal });
    for await (const chunk of client.bytes(answer, signal)) reader.push(chunk);
    reader.end();
  } catch (error) {
    if (!(error instanceof EngineRefused)) throw error;
    problem = error.message;
  }
  const found = problem === null ? await inspect(image, parts) : null;
  if (found) return found;
  throw new BuildFailure(
    `The image ${told(image)} that the Dockerfile stands on cannot be pulled: ${told(problem ?? 'the engine does not have it afterwards')}`,
  );
}

function referenceOf(image: string): ImageReference {
  try {
    return parseImageReference(image);
  } catch (error) {
    if (!(error instanceof InvalidImageReference)) throw error;
    throw new BuildFailure(`The Dockerfile stands on "${told(image)}", which ${error.message}.`);
  }
}

async function checkRegistry(registry: string, allow: AllowList, signal: AbortSignal): Promise<void> {
  const refused = (why: string) =>
    new BuildFailure(
      `Images of the registry ${told(registry)} are not pulled for a Dockerfile: ${why}. Its operator may allow it.`,
    );
  try {
    const { host, allowed } = checkUrl(`https://${registry}/`, {
      allow,
      ports: registryPorts,
      httpsOnly: true,
    });
    if (allowed) return;
    // A name that is not known is the engine's to say.
    for (const address of await defaultLookup(host, signal).catch(() => []))
      if (checkAddress(address) !== null) throw refused('it is at a private address');
  } catch (error) {
    if (error instanceof SafeNetRefused) throw refused(error.message);
    throw error;
  }
}

/** Slashes of a name are slashes of the address; nothing else of it may be. */
const encodeName = (image: string): string =>
  image
    .split('/')
    .map((part) => encodeURIComponent(part))
    .join('/');
