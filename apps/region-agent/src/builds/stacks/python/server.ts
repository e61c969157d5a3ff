import { posix } from 'node:path';
import { at, type Look } from '../../plan.js';
import { needs, type Requirements } from './packages.js';

/** How a Python source is started. */
export interface PythonServer {
  name: 'django' | 'fastapi' | 'flask' | 'python';
  start: string;
  /** A server package that the source does not name itself. */
  adds: string | null;
  /** After the install. */
  build: string | null;
}

const mainFiles = ['main.py', 'app.py', 'server.py', 'wsgi.py', 'asgi.py', 'run.py', 'index.py'];
const address = '"${HOST:-0.0.0.0}:${PORT:-8000}"';

/** By the packages that the source names; null when nothing to start is found. */
export async function pythonServer(look: Look, found: Requirements | null): Promise<PythonServer | null> {
  return (await django(look, found)) ?? (await framework(look, found)) ?? (await plainFile(look));
}

async function django(look: Look, found: Requirements | null): Promise<PythonServer | null> {
  const manage = await look.tree.read(at(look, 'manage.py'));
  if (manage === null || !needs(found, 'django')) return null;
  const settings = /DJANGO_SETTINGS_MODULE['"]\s*,\s*['"]([\w.]+)['"]/.exec(manage)?.[1] ?? null;
  const folders = (await look.tree.list(look.appDir)).filter((name) => /^\w+$/.test(name));
  let module: string | null = null;
  // mysite.settings, or mysite.settings.production: wsgi.py stands beside.
  for (let name = settings ?? ''; name.includes('.') && module === null;) {
    name = name.slice(0, name.lastIndexOf('.'));
    if (await look.tree.has(at(look, `${name.replaceAll('.', '/')}/wsgi.py`))) module = name;
  }
  for (const name of module === null ? folders : [])
    if (await look.tree.has(at(look, name, 'wsgi.py'))) module ??= name;
  if (module === null) return null;
  const settingsText =
    settings === null ? '' : ((await look.tree.read(at(look, `${settings.replaceAll('.', '/')}.py`))) ?? '');
  return {
    name: 'django',
    start: `python3 -m gunicorn ${module}.wsgi:application --bind ${address}`,
    adds: needs(found, 'gunicorn') ? null : 'gunicorn',
    build: /^STATIC_ROOT\s*=/m.test(settingsText) ? 'python3 manage.py collectstatic --noinput' : null,
  };
}

const frameworks = [
  {
    name: 'fastapi',
    maker: /^(\w+)\s*(?::\s*\w+\s*)?=\s*(?:\w+\.)?FastAPI\(/m,
    server: 'uvicorn',
    start: (app: string) => `python3 -m uvicorn ${app} --host "\${HOST:-0.0.0.0}" --port "\${PORT:-8000}"`,
  },
  {
    name: 'flask',
    maker: /^(\w+)\s*(?::\s*\w+\s*)?=\s*(?:\w+\.)?Flask\(/m,
    server: 'gunicorn',
    start: (app: string) => `python3 -m gunicorn ${app} --bind ${address}`,
  },
] as const;

async function framework(look: Look, found: Requirements | null): Promise<PythonServer | null> {
  for (const { name, maker, server, start } of frameworks) {
    if (!needs(found, name)) continue;
    const app = await appObject(look, maker);
    if (app === null) continue;
    return { name, start: start(app), adds: needs(found, server) ? null : server, build: null };
  }
  return null;
}

/** `module:object` of the application, by the line that makes it; a factory `create_app` too. */
async function appObject(look: Look, maker: RegExp): Promise<string | null> {
  const packages = (await look.tree.list(look.appDir)).filter((name) => /^[a-z_]\w*$/i.test(name));
  const places = ['', ...['src', 'app', ...packages].map((name) => `${name}/`)];
  for (const place of new Set(places))
    for (const file of [...mainFiles, ...(place === '' ? [] : ['__init__.py'])]) {
      const text = await look.tree.read(at(look, place, file));
      if (text === null) continue;
      const module = posix
        .join(place, file)
        .replace(/(\/__init__)?\.py$/, '')
        .replaceAll('/', '.');
      const object = maker.exec(text)?.[1];
      if (object !== undefined) return `${module}:${object}`;
      // uvicorn would need another option for it, so only where the server takes a call.
      if (/^def create_app\(/m.test(text) && maker.source.includes('Flask'))
        return `'${module}:create_app()'`;
    }
  return null;
}

async function plainFile(look: Look): Promise<PythonServer | null> {
  for (const file of mainFiles)
    if (await look.tree.has(at(look, file)))
      return { name: 'python', start: `python3 ${file}`, adds: null, build: null };
  return null;
}
