import type { Config } from '@nebo/service-kit/config';
import { operatorTokenOf } from './operator-token.js';

/** One request of an operator's command. */
export interface AdminRequest {
  method: 'GET' | 'POST';
  service: string;
  path: string;
  body?: Record<string, unknown>;
}

/** Bytes that go before an operator's request, to be named in it. */
export interface AdminUpload {
  /** A path, or an address that is fetched here. */
  from: { file: string } | { url: string };
  service: string;
  path: string;
}

/** One operator's command: its options and the request that it becomes. */
export interface AdminCommand {
  usage: string;
  help: string;
  options: readonly string[];
  required: readonly string[];
  /** @throws RangeError for options that do not go together */
  upload?(given: Record<string, string>): AdminUpload;
  /** @param uploaded the answer to the upload, where there is one */
  request(given: Record<string, string>, uploaded?: Record<string, unknown>): AdminRequest;
}

/** A command that looks for itself, whether or not the installation runs. */
export interface LocalCommand {
  usage: string;
  help: string;
  options: readonly string[];
  required: readonly string[];
  /**
   * @param url where the API answers
   * @returns the object for `--json`, the text for people, and whether all is well
   */
  run(
    config: Config,
    url: string,
    given: Record<string, string>,
  ): Promise<{ result: object; text: string; ok: boolean }>;
}

const list = (text: string | undefined) =>
  text
    ?.split(',')
    .map((part) => part.trim())
    .filter(Boolean);

/** Leaves out what was not given. */
const present = (body: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));

const billing = (path: string, body: Record<string, unknown>): AdminRequest => ({
  method: 'POST',
  service: 'identity-billing',
  path,
  body: present(body),
});

const catalogue = (path: string, body: Record<string, unknown>): AdminRequest => ({
  method: 'POST',
  service: 'compute',
  path,
  body: present(body),
});

/** What is no number goes as it is: the service refuses it by its name. */
const numberOf = (text: string | undefined): number | string | undefined =>
  text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : text;

/** @throws RangeError naming the option */
function jsonOf(option: string, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new RangeError(`--${option} must be JSON`);
  }
}

const keyVerb = (path: string, help: string): AdminCommand => ({
  usage: '--key ID',
  help,
  options: ['key'],
  required: ['key'],
  request: ({ key }) => billing(path, { key }),
});

const modelVerb = (verb: string, help: string): AdminCommand => ({
  usage: '--model ID',
  help,
  options: ['model'],
  required: ['model'],
  request: ({ model }) => ({
    method: 'POST',
    service: 'inference-router',
    path: `/models/${verb}`,
    body: { model },
  }),
});

/** All commands by their words (design.md, section 7). */
export const adminCommands: Readonly<Record<string, AdminCommand>> = {
  'account create': {
    usage: '--name N [--topup RUB] [--credits RUB]',
    help: 'makes an account with a project "default"; real money and bonus credits in rubles',
    options: ['name', 'topup', 'credits'],
    required: ['name'],
    request: ({ name, topup, credits }) => billing('/account-create', { name, topup, credits }),
  },
  'account topup': {
    usage: '--account ID --amount RUB',
    help: 'adds real money',
    options: ['account', 'amount'],
    required: ['account', 'amount'],
    request: ({ account, amount }) => billing('/account-topup', { account, amount }),
  },
  'project create': {
    usage: '--account ID --name N',
    help: 'makes a project',
    options: ['account', 'name'],
    required: ['account', 'name'],
    request: ({ account, name }) => billing('/project-create', { account, name }),
  },
  'key create': {
    usage: '--account ID [--actions a,b] [--resources r,…] [--projects id,…] | [--policy JSON]',
    help: 'mints an API key; it is shown once, in `key`. Without options it may do everything',
    options: ['account', 'actions', 'resources', 'projects', 'policy'],
    required: ['account'],
    request: ({ account, actions, resources, projects, policy }) =>
      billing('/key-create', {
        account,
        actions: list(actions),
        resources: list(resources),
        projects: list(projects),
        policy: policy === undefined ? undefined : jsonOf('policy', policy),
      }),
  },
  'key revoke': keyVerb('/key-revoke', 'ends an API key at once'),
  'inference-key create': {
    usage: '--account ID [--monthly-limit RUB] [--models a,b]',
    help: 'mints an inference key; it is shown once, in `key`',
    options: ['account', 'monthly-limit', 'models'],
    required: ['account'],
    request: (given) =>
      billing('/inference-key-create', {
        account: given.account,
        monthly_limit: given['monthly-limit'],
        models: list(given.models),
      }),
  },
  'inference-key revoke': keyVerb(
    '/inference-key-revoke',
    'ends an inference key at once; its history stays',
  ),
  'inference-key disable': keyVerb('/inference-key-disable', 'stops an inference key until it is enabled'),
  'inference-key enable': keyVerb('/inference-key-enable', 'lets a disabled inference key work again'),
  'price list': {
    usage: '[--prefix P]',
    help: 'prices in force, in rubles per their unit',
    options: ['prefix'],
    required: [],
    request: ({ prefix }) => ({
      method: 'GET',
      service: 'identity-billing',
      path: `/price-list${prefix ? `?prefix=${encodeURIComponent(prefix)}` : ''}`,
    }),
  },
  'price set': {
    usage: '--id ID --amount RUB [--unit UNIT]',
    help: 'a new version of a price, in rubles per its unit',
    options: ['id', 'amount', 'unit'],
    required: ['id', 'amount'],
    request: ({ id, amount, unit }) => billing('/price-set', { id, amount, unit }),
  },
  'model list': {
    usage: '',
    help: 'models of the catalogue: for sale or withdrawn, where they run, at what prices',
    options: [],
    required: [],
    request: () => ({ method: 'GET', service: 'inference-router', path: '/models' }),
  },
  'model withdraw': modelVerb('withdraw', 'takes a model from sale; requests that run finish at their price'),
  'model offer': modelVerb('offer', 'offers a withdrawn model again'),
  'slice list': {
    usage: '[--account ID]',
    help: 'money that routers of inference have leased; frozen slices, whose router was not heard of in time, first',
    options: ['account'],
    required: [],
    request: ({ account }) => ({
      method: 'GET',
      service: 'identity-billing',
      path: `/slices${account ? `?account=${encodeURIComponent(account)}` : ''}`,
    }),
  },
  'slice write-off': {
    usage: '--slice ID',
    help: 'frees the money of a frozen slice whose router will not come back',
    options: ['slice'],
    required: ['slice'],
    request: ({ slice }) => billing('/slice-write-off', { slice }),
  },
  'region list': {
    usage: '',
    help: 'regions of the installation',
    options: [],
    required: [],
    request: () => ({ method: 'GET', service: 'compute', path: '/regions' }),
  },
  'region add': {
    usage: '--name N',
    help: 'adds a region',
    options: ['name'],
    required: ['name'],
    request: ({ name }) => ({ method: 'POST', service: 'compute', path: '/regions', body: { name } }),
  },
  'region token': {
    usage: '--region ID',
    help: 'mints the token of a region’s agent, shown once, in `token`; the former one ends',
    options: ['region'],
    required: ['region'],
    request: ({ region }) => ({
      method: 'POST',
      service: 'compute',
      path: `/regions/${region}/token`,
      body: {},
    }),
  },
  'pool list': {
    usage: '',
    help: 'ranges of public addresses by region, with how many are held and free',
    options: [],
    required: [],
    request: () => ({ method: 'GET', service: 'networking', path: '/pools' }),
  },
  'pool add': {
    usage: '--region ID --range CIDR',
    help: 'adds public addresses to a region, at most a /16 at once',
    options: ['region', 'range'],
    required: ['region', 'range'],
    request: ({ region, range }) => ({
      method: 'POST',
      service: 'networking',
      path: '/pools',
      body: { region, range },
    }),
  },
  'plan list': {
    usage: '',
    help: 'sizes of machines; their prices are vm.<name>.month and vm.<name>.hour of the price list',
    options: [],
    required: [],
    request: () => ({ method: 'GET', service: 'compute', path: '/plans' }),
  },
  'plan add': {
    usage: '--name N --vcpu N --memory MB --disk GB [--max-disk GB]',
    help: 'adds a size of machines; its two prices must be set before',
    options: ['name', 'vcpu', 'memory', 'disk', 'max-disk'],
    required: ['name', 'vcpu', 'memory', 'disk'],
    request: (given) =>
      catalogue('/plans', {
        name: given['name'],
        vcpu: numberOf(given['vcpu']),
        memory_mb: numberOf(given['memory']),
        disk_gb: numberOf(given['disk']),
        max_disk_gb: numberOf(given['max-disk']),
      }),
  },
  'image list': {
    usage: '',
    help: 'images, with the regions that have them; withdrawn ones too',
    options: [],
    required: [],
    request: () => ({ method: 'GET', service: 'compute', path: '/images' }),
  },
  'image add': {
    usage:
      '--slug S --version V (--file PATH | --url URL) [--sha256 HEX] [--name N] [--os-family F] [--min-disk GB] [--description T] [--region ID]',
    help: 'stores a disk file (qcow2, or raw with a partition table) and offers it as an image in a region, or in all there are',
    options: [
      'slug',
      'version',
      'file',
      'url',
      'sha256',
      'name',
      'os-family',
      'min-disk',
      'description',
      'region',
    ],
    required: ['slug', 'version'],
    upload: ({ file, url, sha256 }) => {
      if ((file === undefined) === (url === undefined)) throw new RangeError('give either --file or --url');
      return {
        from: file === undefined ? { url: url! } : { file },
        service: 'compute',
        path: `/image-files${sha256 === undefined ? '' : `?sha256=${encodeURIComponent(sha256.toLowerCase())}`}`,
      };
    },
    request: (given, uploaded) =>
      catalogue('/images', {
        slug: given['slug'],
        version: given['version'],
        name: given['name'] ?? `${given['slug']} ${given['version']}`,
        sha256: uploaded?.['sha256'],
        os_family: given['os-family'],
        min_disk_gb: numberOf(given['min-disk']),
        description: given['description'],
        region: given['region'],
      }),
  },
  'image withdraw': {
    usage: '--image ID',
    help: 'takes an image from the list; machines that were made of it keep it. The same file added again is offered again',
    options: ['image'],
    required: ['image'],
    request: ({ image }) => catalogue('/images/withdraw', { image }),
  },
};

/** Commands that look at the installation as a whole; `doctor` also at one that does not run. */
export const localCommands: Readonly<Record<string, LocalCommand>> = {
  doctor: {
    usage: '',
    help: 'what does the work of each area here and why; a line with ! is worth knowing, one with x is wrong',
    options: [],
    required: [],
    run: async (config, url) => {
      // It brings half of Nebo along; no other command waits for that.
      const { doctorText, examine } = await import('./doctor.js');
      const result = await examine(config, url);
      return { result, text: doctorText(result), ok: result.ok };
    },
  },
  audit: {
    usage: '[--settle SECONDS]',
    help: 'compares machines, networks, addresses and what is charged with what the regions’ hosts really have; exit code 1 when something is lost or left over',
    options: ['settle'],
    required: [],
    run: async (config, url, { settle = '10' }) => {
      if (!/^\d{1,4}$/.test(settle)) throw new RangeError('--settle must be a whole number of seconds');
      const { audit, auditText } = await import('./audit/audit.js');
      const { operatorDoor } = await import('./audit/snapshot.js');
      const report = await audit(operatorDoor(url, operatorTokenOf(config)), {
        settleSeconds: Number(settle),
      });
      return { result: report, text: auditText(report), ok: report.ok };
    },
  },
};
