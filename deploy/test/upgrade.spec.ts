import { withCluster } from './support/cluster.js';
import { chart, everything, manifestsOf, required, runHelm, withHelm, withValues } from './support/helm.js';

/** What `helm install` says it would do in a cluster that has these master keys. */
async function dryRun(values: object, masterKeys: Record<string, string> = {}): Promise<string> {
  const args = [
    'install',
    'nebo',
    chart,
    '--namespace',
    'prod',
    '--dry-run=server',
    '--disable-openapi-validation',
  ];
  const ran = await withCluster(masterKeys, (KUBECONFIG) =>
    withValues(values, (path) => runHelm([...args, '-f', path], { KUBECONFIG })),
  );
  if (ran.code !== 0) throw new Error(ran.stderr);
  return ran.stdout;
}

/** The master keys in what would be applied, by Secret. */
async function keysIn(values: object, masterKeys: Record<string, string>): Promise<Record<string, string>> {
  const text = await dryRun(values, masterKeys);
  const yaml = text
    .slice(text.indexOf('HOOKS:'), text.indexOf('NOTES:'))
    .replace(/^(HOOKS|MANIFEST):$/gm, '---');
  const holders = manifestsOf(yaml).filter(({ data }) => data?.['master.key']);
  return Object.fromEntries(
    holders.map(({ metadata, data }) => [
      metadata.name,
      Buffer.from(data!['master.key']!, 'base64').toString(),
    ]),
  );
}

withHelm('the master key', () => {
  const key = 'ab'.repeat(32);

  it('stays the one that is in the cluster', async () => {
    expect(await keysIn(required, { 'nebo-master-key': key })).toEqual({
      'nebo-master-key': key,
      'nebo-migrate': key,
    });
  });

  it('is that of an install whose migration failed', async () => {
    expect(await keysIn(required, { 'nebo-migrate': key })).toEqual({
      'nebo-master-key': key,
      'nebo-migrate': key,
    });
  });

  it('is new only where there is none', async () => {
    const keys = await keysIn(required, {});
    expect(keys['nebo-master-key']).toMatch(/^[0-9a-f]{64}$/);
    expect(keys['nebo-migrate']).toBe(keys['nebo-master-key']);
  });

  it('is nowhere in the release where the operator has it', async () => {
    expect(
      await keysIn({ ...required, masterKey: { existingSecret: 'own' } }, { 'nebo-master-key': key }),
    ).toEqual({});
  });
});

withHelm('the notes after an install', () => {
  const notes = async (values: object) => (await dryRun(values)).split('NOTES:')[1]!;

  it('say how to mint the agent’s token while there is no agent', async () => {
    const text = await notes(required);
    expect(text).toContain('region token --region ID');
    expect(text).toContain('get secret nebo-master-key');
    expect(text).not.toContain('s3cret');
  });

  it('say that nothing is isolated where it is not', async () => {
    expect(await notes(everything)).toContain('NOT ISOLATED');
    const local = await notes({ ...everything, regionAgent: { ...everything.regionAgent, driver: 'local' } });
    expect(local).toContain('privileged');
    expect(local).toContain('kubectl label node NODE nebo-region=true');
  });
});
