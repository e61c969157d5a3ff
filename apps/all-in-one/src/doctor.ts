import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { gitConfigSetting, loadOAuthApps } from '@nebo/apps-builder';
import { dnsSettings } from '@nebo/dns';
import { loadCatalogue } from '@nebo/inference-router';
import { engineSettings, findEngine, findToolchain, probeDrivers, toolAdvice } from '@nebo/region-agent';
import type { Config } from '@nebo/service-kit/config';

/** One area of the installation: what does its work here, and why that. */
export interface Finding {
  area: string;
  /** `note`: worth knowing, such as no isolation; `bad`: the start or the running installation has trouble with it. */
  state: 'ok' | 'note' | 'bad';
  in_use: string;
  why: string;
}

/** What the doctor found. */
export interface Diagnosis {
  /** Nothing is bad. */
  ok: boolean;
  /** An installation answers at its address. */
  running: boolean;
  findings: Finding[];
}

interface Health {
  ok: boolean;
  parts: { name: string; ok: boolean; required: boolean; detail?: string }[];
}

/**
 * Looks at this machine and this environment as `npm start` would, and at the installation when it runs. Passwords of
 * addresses are left out.
 * @param url where the API answers
 */
export async function examine(config: Config, url: string): Promise<Diagnosis> {
  const health = await healthOf(url);
  const findings = [
    installation(url, health),
    dataFolder(config),
    database(config, health),
    bus(config, health),
    ...(await drivers(config)),
    languages(config),
    await containerEngine(config),
    gitHosts(config),
    nameServer(config, health),
    inference(config),
    traces(config),
    usage(config),
  ];
  return {
    ok: findings.every(({ state }) => state !== 'bad'),
    running: health !== null,
    findings,
  };
}

/** The same for people, one line per area. */
export function doctorText({ findings }: Diagnosis): string {
  const width = (key: 'area' | 'in_use') => Math.max(...findings.map((finding) => finding[key].length));
  const [area, use] = [width('area'), Math.min(60, width('in_use'))];
  const marks = { ok: '  ', note: '! ', bad: 'x ' };
  const lines = findings.map(
    (finding) =>
      `${marks[finding.state]}${finding.area.padEnd(area)}  ${finding.in_use.padEnd(use)}  ${finding.why}`,
  );
  return `${lines.join('\n')}\n`;
}

/** Null: nobody answers there, or something that is no Nebo. */
async function healthOf(url: string): Promise<Health | null> {
  try {
    const answer = await fetch(`${url}/healthz`, { signal: AbortSignal.timeout(5_000) });
    const health = (await answer.json()) as Partial<Health> | null;
    return Array.isArray(health?.parts) ? (health as Health) : null;
  } catch {
    return null;
  }
}

function installation(url: string, health: Health | null): Finding {
  const area = 'installation';
  if (!health)
    return {
      area,
      state: 'note',
      in_use: 'not running',
      why: `no Nebo answers at ${url}; npm start, or NEBO_API_PORT when it has another port`,
    };
  const missing = health.parts.filter((part) => !part.ok);
  if (missing.length === 0)
    return { area, state: 'ok', in_use: url, why: `all ${health.parts.length} parts are ready` };
  const words = missing.map(({ name, detail }) => `${name}${detail ? ` (${detail})` : ''}`).join('; ');
  return { area, state: health.ok ? 'note' : 'bad', in_use: url, why: `not ready: ${words}` };
}

function dataFolder(config: Config): Finding {
  const home = resolve(config.text('NEBO_HOME', '.nebo'));
  const keyFile = resolve(config.text('NEBO_MASTER_KEY_FILE', `${home}/master.key`));
  const why = config.optional('NEBO_HOME') ? 'NEBO_HOME' : 'NEBO_HOME is not set';
  return existsSync(keyFile)
    ? { area: 'data folder', state: 'ok', in_use: home, why: `${why}; the master key is ${keyFile}` }
    : {
        area: 'data folder',
        state: 'note',
        in_use: home,
        why: `${why}; no master key yet, a start makes it`,
      };
}

/** What services say of one of their parts, when they say that it is away. */
function troubleWith(part: string, health: Health | null): string | null {
  const details = health?.parts.flatMap(({ detail }) => detail?.split('; ') ?? []) ?? [];
  return details.find((detail) => detail.startsWith(`${part}: `)) ?? null;
}

/** An address without user and password. */
function plain(address: string): string {
  // NATS also takes `host:port`.
  if (!address.includes('://')) return address.slice(address.lastIndexOf('@') + 1);
  if (!URL.canParse(address)) return 'an address that cannot be read';
  const url = new URL(address);
  return `${url.protocol}//${url.host}${url.pathname}`;
}

function database(config: Config, health: Health | null): Finding {
  const own = config.optional('DATABASE_URL');
  const in_use = own
    ? plain(own)
    : `embedded PostgreSQL in ${resolve(config.text('NEBO_HOME', '.nebo'), 'postgres')}`;
  const trouble = troubleWith('postgres', health);
  const why = own ? 'DATABASE_URL' : 'DATABASE_URL is not set';
  return {
    area: 'database',
    state: trouble ? 'bad' : 'ok',
    in_use,
    why: trouble ? `${why}; ${trouble}` : why,
  };
}

function bus(config: Config, health: Health | null): Finding {
  const own = config.optional('NATS_URL');
  const in_use = own ? `NATS ${own.split(',').map(plain).join(', ')}` : 'embedded, inside the process';
  const trouble = troubleWith('bus', health);
  const why = own ? 'NATS_URL' : 'NATS_URL is not set';
  // Events wait in the outbox: an installation without its bus still works.
  return { area: 'bus', state: trouble ? 'note' : 'ok', in_use, why: trouble ? `${why}; ${trouble}` : why };
}

async function drivers(config: Config): Promise<Finding[]> {
  try {
    const choices = Object.entries(await probeDrivers(config.env));
    return choices.map(([area, { driver, isolated, simulated, why }]) => {
      const without = simulated ? 'nothing of it is real' : 'NOT isolated from this machine';
      return {
        area,
        state: isolated ? 'ok' : 'note',
        in_use: isolated ? driver : `${driver}, ${without}`,
        why,
      };
    });
  } catch (error) {
    return [{ area: 'drivers', state: 'bad', in_use: 'none', why: (error as Error).message }];
  }
}

function gitHosts(config: Config): Finding {
  const area = 'git hosts';
  const file = config.optional(gitConfigSetting);
  if (file === undefined)
    return {
      area,
      state: 'ok',
      in_use: 'by token only',
      why: `${gitConfigSetting} is not set: no OAuth apps`,
    };
  try {
    const names = loadOAuthApps(config).map(({ provider, baseUrl, installed }) => {
      const where = baseUrl === null ? provider : `${provider} (${plain(baseUrl)})`;
      return installed === null ? where : `${where} with an app to install`;
    });
    const publicUrl = config.optional('NEBO_PUBLIC_URL');
    // The host sends browsers back to this address, which has to stand in the app there.
    return {
      area,
      state: publicUrl === undefined ? 'note' : 'ok',
      in_use: names.length === 0 ? 'by token only' : `by token; OAuth apps: ${names.join(', ')}`,
      why:
        publicUrl === undefined
          ? `${file}; NEBO_PUBLIC_URL is not set: people come back to this machine`
          : file,
    };
  } catch (error) {
    return { area, state: 'bad', in_use: 'none', why: (error as Error).message };
  }
}

function nameServer(config: Config, health: Health | null): Finding {
  const area = 'dns';
  try {
    const { nameservers } = dnsSettings(config);
    const host = config.text('NEBO_DNS_BIND', config.text('NEBO_BIND', '127.0.0.1'));
    const in_use = `built-in, ${host}:${config.port('NEBO_DNS_PORT', 5354)} (UDP and TCP)`;
    const trouble = health?.parts.find(({ name, ok }) => name === 'dns' && !ok);
    if (trouble) return { area, state: 'bad', in_use, why: trouble.detail ?? 'does not answer' };
    const names = nameservers.map((name) => name.replace(/\.$/, '')).join(', ');
    return config.list('NEBO_NAMESERVERS').length > 0
      ? { area, state: 'ok', in_use, why: `zones are delegated to ${names}` }
      : {
          area,
          state: 'note',
          in_use,
          why: `NEBO_NAMESERVERS is not set: zones are to be delegated to ${names}`,
        };
  } catch (error) {
    return { area, state: 'bad', in_use: 'none', why: (error as Error).message };
  }
}

/** What builds and replicas can run on here, and what is missing for the others. */
function languages(config: Config): Finding {
  const { npm, go, python } = findToolchain(config.env);
  const found = [
    `Node ${process.versions.node}`,
    ...(npm ? ['npm'] : []),
    ...(go ? [`Go ${go.version} (${go.root})`] : []),
    ...(python ? [`Python ${python.version}${python.pip ? ' with pip' : ''} (${python.executable})`] : []),
  ];
  const lacks = [
    ...(npm ? [] : [toolAdvice.npm]),
    ...(go ? [] : [toolAdvice.go]),
    ...(python ? (python.pip ? [] : [toolAdvice.pip]) : [toolAdvice.python]),
  ];
  return {
    area: 'languages',
    state: lacks.length === 0 ? 'ok' : 'note',
    in_use: found.join(', '),
    why:
      lacks.length === 0
        ? 'apps of all of them can be built'
        : `builds of others fail; install ${lacks.join('; ')}`,
  };
}

/** What builds Dockerfiles here, if anything does. */
async function containerEngine(config: Config): Promise<Finding> {
  const area = 'container engine';
  try {
    const settings = engineSettings(config.env);
    const found = await findEngine(settings);
    if (found)
      return {
        ...{ area, state: 'ok', in_use: `${found.words} (${found.client.socket})` },
        why: `builds of Dockerfiles, whose steps have the network "${settings.network}"`,
      };
    const why =
      settings.sockets.length === 0
        ? 'NEBO_CONTAINER_ENGINE is off: sources with a Dockerfile are not built by it'
        : `none answers at ${settings.sockets.join(', ')}: sources with a Dockerfile are not built by it`;
    return { area, state: 'note', in_use: 'none', why };
  } catch (error) {
    return { area, state: 'bad', in_use: 'none', why: (error as Error).message };
  }
}

function inference(config: Config): Finding {
  const area = 'inference';
  const file = config.optional('NEBO_INFERENCE_CONFIG');
  try {
    const { offers } = loadCatalogue(config);
    const simulated = offers.filter((offer) => offer.simulated).length;
    if (!file) {
      const why = 'NEBO_INFERENCE_CONFIG is not set: answers are made up';
      return { area, state: 'note', in_use: `the built-in simulator for ${offers.length} models`, why };
    }
    const upstreams = new Map<string, number>();
    for (const { provider } of offers.flatMap(({ routes }) => routes)) {
      const words = provider.baseUrl === null ? 'simulator' : `${provider.name} (${plain(provider.baseUrl)})`;
      upstreams.set(words, (upstreams.get(words) ?? 0) + 1);
    }
    const in_use = [...upstreams].map(([name, count]) => `${name} for ${count}`).join(', ');
    const why = `${file}${simulated > 0 ? `; ${simulated} of ${offers.length} models are simulated` : ''}`;
    return { area, state: simulated > 0 ? 'note' : 'ok', in_use, why };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const why = error.name === 'ConfigError' ? error.message : `${file}: ${error.message}`;
    return { area, state: 'bad', in_use: 'none', why };
  }
}

function traces(config: Config): Finding {
  const names = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT'];
  const name = names.find((candidate) => config.optional(candidate));
  return name
    ? { area: 'traces', state: 'ok', in_use: plain(config.text(name)), why: name }
    : { area: 'traces', state: 'ok', in_use: 'none', why: 'OTEL_EXPORTER_OTLP_ENDPOINT is not set' };
}

function usage(config: Config): Finding {
  const brokers = config.list('NEBO_KAFKA_BROKERS');
  return brokers.length > 0
    ? { area: 'usage export', state: 'ok', in_use: `Kafka ${brokers.join(', ')}`, why: 'NEBO_KAFKA_BROKERS' }
    : { area: 'usage export', state: 'ok', in_use: 'none', why: 'NEBO_KAFKA_BROKERS is not set' };
}
