import { type PackageJson } from './package-json.js';

/** Packages that answer requests: what has one of them is a server, whatever else builds its pages. */
const serverPackages = [
  'express',
  'fastify',
  'koa',
  'hono',
  '@hono/node-server',
  '@hapi/hapi',
  'restify',
  'polka',
  '@nestjs/core',
  '@adonisjs/core',
  'h3',
  'ws',
];

/** Whether a package starts a server of its own. */
export function startsServer(pkg: PackageJson): boolean {
  const start = pkg.scripts['start'];
  if (start === undefined) return false;
  return (
    serverPackages.some((name) => pkg.dependencies[name] !== undefined) ||
    /^(\w+=\S* )*(node|tsx|ts-node|nodemon)\s/.test(start)
  );
}
