import { posix } from 'node:path';
import { type CompiledRouting, compileRouting, RoutingFileError, routingFileNames } from '@nebo/routing';
import { BuildFailure, type SourceTree } from './tree.js';

/** Largest form of the rules that goes along with every route, bytes. */
const mostBytes = 512 * 1024;
/** So many faults are told at once. */
const mostFaults = 20;

/**
 * The rules of an app's routing file, which stands in the app's own folder.
 * @param say writes a line into the build's log
 * @returns null when there is none
 * @throws BuildFailure naming file and line: rules are used whole or the build fails, never in part
 */
export async function readRouting(
  tree: SourceTree,
  appDir: string,
  say: (line: string) => void,
): Promise<CompiledRouting | null> {
  const found: { name: (typeof routingFileNames)[number]; text: string }[] = [];
  for (const name of routingFileNames) {
    const path = posix.join(appDir, name);
    if (!(await tree.has(path))) continue;
    const text = await tree.read(path);
    if (text === null) throw new BuildFailure(`"${name}" is too large to be a routing file.`);
    found.push({ name, text });
  }
  const [file, other] = found;
  if (!file) return null;
  if (other) say(`warning: ${file.name} rules, ${other.name} is not looked at`);
  try {
    const { routing, warnings } = compileRouting(file.name, file.text);
    for (const { line, message } of warnings) say(`warning: ${file.name}:${line}: ${message}`);
    if (Buffer.byteLength(JSON.stringify(routing)) > mostBytes)
      throw new BuildFailure(`The rules of "${file.name}" are more than ${mostBytes} bytes together.`);
    const { redirects, headers, rewrites, cors } = routing;
    say(
      `${file.name}: ${redirects.length} redirects, ${headers.length} header rules, ${rewrites.length} rewrites, ${cors.length} CORS rules`,
    );
    return routing;
  } catch (error) {
    if (!(error instanceof RoutingFileError)) throw error;
    const { problems } = error;
    for (const { line, message } of problems.slice(0, mostFaults))
      say(`error: ${file.name}:${line}: ${message}`);
    const [first] = problems;
    const more = problems.length > 1 ? ` (and ${problems.length - 1} more, see the log)` : '';
    throw new BuildFailure(`${file.name}:${first!.line}: ${first!.message}${more}`);
  }
}
