import { IdentitySigner } from '@nebo/contracts';
import { Config, masterKeyOf, RemoteTarget } from '@nebo/service-kit';
import { createEdge, type Edge } from './edge.js';
import { type AccessHook } from './observe/access.js';
import { type EdgeLogger } from './observe/logger.js';
import { type RouteSource } from './routes/route-source.js';
import { targetRouteSource } from './routes/target-route-source.js';
import { edgeSettings } from './settings.js';
import { HttpWakeDesk } from './wake/http-desk.js';

/** The whole stop ends before this, come what may: 10 s is what an operator waits (design.md section 7). */
const STOP_MS = 9_500;

/** Starts an edge from the environment and stops it on SIGTERM, SIGINT and SIGHUP (a closed terminal). For `main.ts`. */
export async function runEdge(logger: EdgeLogger, onAccess: AccessHook): Promise<Edge> {
  const settings = edgeSettings();
  if (settings.appsBuilderUrl === null) {
    logger.warn({}, 'NEBO_APPS_BUILDER_URL is not set: only the routes stored on disk are served');
  }
  const source: RouteSource =
    settings.appsBuilderUrl === null ? nobody : controlPlane(settings.appsBuilderUrl);
  const { wakeDoor } = settings;
  if (wakeDoor === null) logger.warn({}, 'NEBO_WAKE is not set: apps that sleep cannot be woken from here');
  const desk = wakeDoor && new HttpWakeDesk(wakeDoor.address, wakeDoor.token);
  const edge = createEdge({
    ...settings,
    ...(desk ? { wake: desk } : {}),
    source,
    logger,
    onAccess,
  });
  let asked = false;
  const stop = (): void => {
    if (asked) return;
    asked = true;
    setTimeout(() => process.exit(1), STOP_MS).unref();
    const stopped = edge.stop().finally(() => desk?.close());
    stopped.then(
      () => process.exit(0),
      (error: unknown) => {
        logger.error({ err: error }, 'the edge did not stop cleanly');
        process.exit(1);
      },
    );
  };
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, stop);
  await edge.start();
  return edge;
}

/** apps-builder in another process; calls are signed with the installation's master key. */
function controlPlane(url: string): RouteSource {
  const signer = new IdentitySigner(masterKeyOf(new Config()).derive('identity'));
  return targetRouteSource(new RemoteTarget(url), signer);
}

const nobody: RouteSource = {
  fetchRoutes: () => Promise.reject(new Error('no control plane is configured')),
  fetchArtifact: () => Promise.reject(new Error('no control plane is configured')),
};
