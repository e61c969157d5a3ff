import type { V1Build } from '@nebo/contracts';
import { CliError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { at, type ApiClient } from '../http/client.js';

/**
 * One build, or null when there is none. Servers without a read of one build (they know the list only) are asked for
 * the list.
 * @throws CliError
 */
export async function readBuild(
  client: ApiClient,
  appId: string,
  buildId: string,
  signal?: AbortSignal,
): Promise<V1Build | null> {
  try {
    return await client.get<V1Build>(at`/apps/${appId}/builds/${buildId}`, undefined, signal);
  } catch (error) {
    if (!(error instanceof CliError) || error.exit === exitCodes.service) throw error;
    if (error.code !== 'unknown_operation' && error.more.extra?.['status'] !== 405) throw error;
  }
  for (let offset = 0; ; offset += 100) {
    const { data } = await client.get<{ data: V1Build[] }>(
      at`/apps/${appId}/builds`,
      { limit: 100, offset },
      signal,
    );
    const found = data.find(({ id }) => id.toLowerCase() === buildId.toLowerCase());
    if (found || data.length < 100) return found ?? null;
  }
}

/** The newest build of an app. @throws CliError exit 5 when it has none */
export async function newestBuild(client: ApiClient, appId: string): Promise<V1Build> {
  const { data } = await client.get<{ data: V1Build[] }>(at`/apps/${appId}/builds`, { limit: 1, offset: 0 });
  if (data[0]) return data[0];
  throw new CliError(exitCodes.notFound, 'not_found', 'The app has no build yet', { hint: 'nebo deploy' });
}

/** A build by id, or the newest. @throws CliError */
export async function needBuild(
  client: ApiClient,
  appId: string,
  buildId: string | undefined,
): Promise<V1Build> {
  if (buildId === undefined) return newestBuild(client, appId);
  const found = await readBuild(client, appId, buildId);
  if (found) return found;
  throw new CliError(exitCodes.notFound, 'not_found', `The app has no build ${buildId}`, {
    hint: 'nebo build list',
  });
}
