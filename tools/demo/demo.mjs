/**
 * `npm run demo`: the main job from end to end, on real input, against the running installation (or one that it starts and
 * stops itself): an app from a folder answers under its own address, models answer in the three formats and are paid for.
 */
import { spawn } from 'node:child_process';
import { request } from 'node:http';
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { packFolder } from '@nebo/archive';
import { root } from '../start/node-binary.mjs';

const home = resolve(process.env.NEBO_HOME || join(root, '.nebo'));
const credentialsFile = join(home, 'credentials.json');
const readCredentials = () =>
  existsSync(credentialsFile) ? JSON.parse(readFileSync(credentialsFile, 'utf8')) : null;
const port = process.env.NEBO_API_PORT;
/** Where this data folder's installation was started last, unless a port is given. */
const healthz = () =>
  new URL('/healthz', (!port && readCredentials()?.base_url) || `http://127.0.0.1:${port || 4000}`);
const title = (text) => console.log(`\n── ${text}`);
const isUp = () =>
  fetch(healthz()).then(
    (answer) => answer.ok,
    () => false,
  );

/** Starts an installation of our own when none runs. @returns how to stop it */
async function ensureRunning() {
  if (await isUp()) return () => undefined;
  title('Nebo does not run yet: starting it for the demo');
  const child = spawn(process.execPath, ['tools/start/start.mjs'], {
    cwd: root,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = new Promise((done) => child.once('exit', done));
  while (!(await isUp())) {
    if (child.exitCode !== null) throw new Error('it did not start; the lines above say why');
    await new Promise((done) => setTimeout(done, 200));
  }
  return async () => {
    child.kill('SIGTERM');
    await ended;
  };
}

/** One call of the control API. */
async function api(credentials, method, path, body, headers = {}) {
  const answer = await fetch(`${credentials.base_url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${credentials.accounts[0].api_key}`,
      ...(body && !Buffer.isBuffer(body) ? { 'content-type': 'application/json' } : {}),
      ...headers,
    },
    ...(body ? { body: Buffer.isBuffer(body) ? body : JSON.stringify(body) } : {}),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}

/** The lines of a build's log as they come, until its `done`. */
async function streamLog(credentials, path) {
  const answer = await api(credentials, 'GET', path);
  let rest = '';
  for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line === 'event: done') return;
      if (line.startsWith('data: ')) console.log(`   │ ${line.slice(6)}`);
    }
  }
  throw new Error('the log ended without "done"');
}

/** A page through the edge, addressed by name: *.localhost need not resolve here. */
function page(edgeUrl, host) {
  return new Promise((resolvePage, reject) => {
    const { hostname, port } = new URL(edgeUrl);
    request({ hostname, port, path: '/', headers: { host } }, async (answer) => {
      resolvePage({ status: answer.statusCode, text: (await buffer(answer)).toString() });
    })
      .on('error', reject)
      .end();
  });
}

async function deployFolder(credentials, project) {
  title('An app from a folder');
  const name = `demo-${Date.now().toString(36)}`;
  const created = await (
    await api(credentials, 'POST', `/projects/${project}/apps`, { name, source_type: 'upload' })
  ).json();
  console.log(`   app ${created.name} (${created.id})`);
  const { stream } = await packFolder(join(root, 'e2e/fixtures/static-site'));
  const archive = await buffer(stream);
  const deploy = await (
    await api(credentials, 'POST', `/apps/${created.id}/deployments`, archive, {
      'content-type': 'application/gzip',
    })
  ).json();
  console.log(`   uploaded ${archive.length} bytes, build ${deploy.id} is ${deploy.status}`);
  await streamLog(credentials, `/apps/${created.id}/builds/${deploy.id}/logs`);
  const build = await (
    await api(credentials, 'GET', `/apps/${created.id}/builds/${deploy.id}?wait=live&timeout=60`)
  ).json();
  console.log(
    `   build ${build.status}, rollout ${build.deploy_state}, ${build.duration_ms} ms, archive ${build.source_archive_sha256?.slice(0, 12)}`,
  );
  if (build.deploy_state !== 'live')
    throw new Error(build.error ?? build.boot_error ?? 'the app is not live');
  const { data: domains } = await (await api(credentials, 'GET', `/apps/${created.id}/domains`)).json();
  const domain = domains.find((candidate) => candidate.is_default).domain;
  const answer = await page(credentials.edge_url, domain);
  const port = new URL(credentials.edge_url).port;
  console.log(
    `   http://${domain}:${port}/ answers ${answer.status}: ${answer.text.match(/<h1>(.*)<\/h1>/)?.[1]}`,
  );
  return created;
}

async function chat(credentials) {
  title('A chat completion, streamed, with the official openai client');
  const client = new OpenAI({
    baseURL: `${credentials.ai_url}/v1`,
    apiKey: credentials.accounts[0].inference_key,
  });
  const stream = await client.chat.completions.create({
    model: 'glm-5.3',
    max_tokens: 400,
    stream: true,
    stream_options: { include_usage: true },
    messages: [{ role: 'user', content: 'What is Nebo, in one sentence?' }],
  });
  process.stdout.write('   ');
  for await (const chunk of stream) {
    process.stdout.write(chunk.choices[0]?.delta?.content ?? '');
    if (chunk.usage)
      console.log(`\n   ${chunk.usage.prompt_tokens} tokens in, ${chunk.usage.completion_tokens} out`);
  }
}

/** The same key and address in the other two formats. */
async function otherFormats(credentials) {
  const apiKey = credentials.accounts[0].inference_key;
  const question = 'And in three words?';
  title('A message, with the official anthropic client');
  const message = await new Anthropic({ baseURL: credentials.ai_url, apiKey }).messages.create({
    model: 'kimi-k3',
    max_tokens: 200,
    messages: [{ role: 'user', content: question }],
  });
  const { input_tokens: input, output_tokens: output } = message.usage;
  console.log(`   ${message.content.find(({ type }) => type === 'text')?.text}`);
  console.log(`   ${input} tokens in, ${output} out`);
  title('A response, with the official openai client');
  const response = await new OpenAI({ baseURL: `${credentials.ai_url}/v1`, apiKey }).responses.create({
    model: 'deepseek-v4-pro',
    input: question,
    max_output_tokens: 200,
    store: false,
  });
  console.log(`   ${response.output_text}`);
  console.log(`   ${response.usage.input_tokens} tokens in, ${response.usage.output_tokens} out`);
}

async function ledger(credentials, before) {
  title('What the account’s ledger says');
  // A settlement shows within a second.
  await new Promise((done) => setTimeout(done, 1_000));
  const { data } = await (await api(credentials, 'GET', '/account/ledger?limit=10')).json();
  for (const line of data) {
    console.log(
      `   ${line.created_at}  ${line.kind.padEnd(8)} ${line.amount.padStart(18)} ₽  held ${line.held_amount.padStart(16)} ₽  ${line.description}`,
    );
  }
  const after = await (await api(credentials, 'GET', '/account/balance')).json();
  console.log(`   balance ${before.balance} ₽ → ${after.balance} ₽`);
}

let stop = () => undefined;
try {
  stop = await ensureRunning();
  const credentials = readCredentials();
  if (!credentials) throw new Error(`${credentialsFile} is not there; set NEBO_HOME as for npm start`);
  const before = await (await api(credentials, 'GET', '/account/balance')).json();
  const app = await deployFolder(credentials, credentials.accounts[0].project_id);
  await chat(credentials);
  await otherFormats(credentials);
  await ledger(credentials, before);
  title('Done. Clean up with:');
  const { base_url, accounts } = credentials;
  console.log(
    `   NEBO_API_URL=${base_url} NEBO_API_KEY=${accounts[0].api_key} npm run -s nebo -- api -X DELETE /apps/${app.id}`,
  );
} catch (error) {
  console.error(`\ndemo: ${error.message}`);
  process.exitCode = 1;
} finally {
  await stop();
}
