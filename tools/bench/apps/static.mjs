import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeApp, packed, upload } from '../src/deploy.mjs';

/** Deploys of new folders, each another one. @returns {Promise<number[]>} milliseconds from the upload's start until it is served */
export async function staticFolders(nebo, runs) {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-bench-site-'));
  const took = [];
  try {
    const app = await makeApp(nebo, { app_type: 'frontend' });
    for (let run = 0; run < runs; run += 1) {
      const archive = await packed(siteOf(folder, run));
      const begun = performance.now();
      await upload(nebo, app.id, archive);
      while (!(await served(app.target)).includes(`run ${run}.`)) {
        if (performance.now() - begun > 60_000) throw new Error('a folder is not served after a minute');
        await new Promise((done) => setTimeout(done, 5));
      }
      took.push(performance.now() - begun);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return took;
}

/** A page and 40 files of 25 kB that cannot be packed smaller: an archive of 1 MB. */
function siteOf(folder, run) {
  mkdirSync(join(folder, 'assets'), { recursive: true });
  writeFileSync(join(folder, 'index.html'), `<h1>run ${run}.</h1>`);
  for (let file = 0; file < 40; file += 1)
    writeFileSync(join(folder, 'assets', `${file}.bin`), randomBytes(25_000));
  return folder;
}

/** The page, or what is answered in its place as nothing. */
function served(target) {
  return new Promise((done) => {
    const call = request({ path: '/', ...target }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part) => (text += part));
      answer.once('end', () => done(answer.statusCode === 200 ? text : ''));
    });
    call.once('error', () => done('')).end();
  });
}
