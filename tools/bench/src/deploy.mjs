import { join } from 'node:path';
import { root } from '../../start/node-binary.mjs';

/** A folder as the archive that an upload takes. @returns {Promise<Buffer>} */
export async function packed(folder) {
  const { packFolder } = await import(join(root, 'libs/archive/dist/index.js'));
  const parts = [];
  for await (const part of (await packFolder(folder)).stream) parts.push(part);
  return Buffer.concat(parts);
}

/**
 * A call of the control API.
 * @param {{ baseUrl: string, key: string }} nebo
 * @throws Error with what it answered unless that is a success
 */
export async function call(
  { baseUrl, key },
  method,
  path,
  body,
  headers = { 'content-type': 'application/json' },
) {
  const answer = await fetch(`${baseUrl}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, ...(body === undefined ? {} : headers) },
    ...(body === undefined ? {} : { body: Buffer.isBuffer(body) ? body : JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${text}`);
  return text === '' ? null : JSON.parse(text);
}

let made = 0;

/** Makes an app for uploads. @returns its id, and where it is to be asked */
export async function makeApp(nebo, more) {
  const { project_id: project } = nebo.credentials.accounts[0];
  const name = `bench-${(made += 1)}`;
  const { id } = await call(nebo, 'POST', `/projects/${project}/apps`, {
    name,
    source_type: 'upload',
    ...more,
  });
  const { hostname: host, port } = new URL(nebo.credentials.edge_url);
  return { id, target: { host, port, headers: { host: `${name}.apps.localhost` } } };
}

/** Uploads an archive. @returns {Promise<string>} the build's id */
export async function upload(nebo, appId, archive) {
  const type = { 'content-type': 'application/gzip' };
  return (await call(nebo, 'POST', `/apps/${appId}/deployments`, archive, type)).id;
}

/** Waits until a build is live. @throws Error with why it is not */
export async function untilLive(nebo, appId, build) {
  for (;;) {
    const seen = await call(nebo, 'GET', `/apps/${appId}/builds/${build}?wait=live&timeout=20`);
    if (seen.deploy_state === 'live') return;
    const failed = seen.status === 'error' ? seen.error : seen.boot_error;
    if (failed) throw new Error(failed);
  }
}

/** An app on demand made of a folder, live. */
export async function deployFolder(nebo, folder, more = {}) {
  const app = await makeApp(nebo, { app_type: 'backend', ...more });
  await untilLive(nebo, app.id, await upload(nebo, app.id, await packed(folder)));
  return app;
}
