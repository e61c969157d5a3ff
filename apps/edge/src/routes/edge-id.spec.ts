import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Cleanup, ControlPlane, replicas, startEdge, until } from '../../test/kit.js';
import { silentLogger } from '../observe/logger.js';
import { edgeId } from './edge-id.js';

const cleanup = new Cleanup();
afterEach(() => cleanup.run());
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

describe('an edge among others', () => {
  it('asks and confirms by one name, the same after a restart, says goodbye, and another edge has another', async () => {
    const plane = new ControlPlane();
    plane.route('shop.apps.localhost', replicas(1));
    const first = await startEdge(cleanup, plane);
    await until(() => plane.edges.confirmed.length > 0);
    const [name] = plane.edges.asked;
    expect(name).toMatch(uuid);
    expect(new Set([...plane.edges.asked, ...plane.edges.confirmed])).toEqual(new Set([name]));
    expect(plane.edges.left).toEqual([]);
    await first.edge.stop();
    expect(plane.edges.left).toEqual([name]);

    const again = await startEdge(cleanup, plane, { home: first.home });
    await until(() => again.edge.status().ready);
    expect(new Set(plane.edges.asked)).toEqual(new Set([name]));
    const other = await startEdge(cleanup, plane);
    await until(() => other.edge.status().fetchedAt !== null);
    expect(new Set(plane.edges.asked).size).toBe(2);
  });

  it('stops in time though nobody hears its goodbye, and says none to whom it never reached', async () => {
    const plane = new ControlPlane();
    const heard = await startEdge(cleanup, plane);
    await until(() => heard.edge.status().fetchedAt !== null);
    plane.down = true;
    await heard.edge.stop();
    expect(plane.edges.left).toHaveLength(1);
    const unheard = await startEdge(cleanup, plane);
    await unheard.edge.stop();
    expect(plane.edges.left).toHaveLength(1);
  });

  it('what stands in its file and is no name is replaced; where nothing can be kept it has one all the same', async () => {
    const folder = await cleanup.folder();
    const path = join(folder, 'edge', 'id');
    await mkdir(join(folder, 'edge'));
    await writeFile(path, '../../etc');
    const id = await edgeId(path, silentLogger);
    expect(id).toMatch(uuid);
    expect((await readFile(path, 'utf8')).trim()).toBe(id);
    await writeFile(join(folder, 'file'), '');
    expect(await edgeId(join(folder, 'file', 'id'), silentLogger)).toMatch(uuid);
  });
});
