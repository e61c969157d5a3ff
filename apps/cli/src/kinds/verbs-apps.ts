import type { Verb, VerbGroup, WaitSpec } from './verbs.js';

const run: WaitSpec = {
  read: '/apps/{app_id}/job-runs/{run_id}',
  made: 'run_id',
  field: 'status',
  good: ['success'],
  bad: ['error', 'timeout', 'cancelled', 'missed'],
  reason: 'error',
};

/** Zones, domains and certificates, jobs, and what further commands apps have. */
export const appVerbs: readonly VerbGroup[] = [
  {
    name: 'zone',
    summary: 'DNS zones and their delegation',
    example: 'nebo zone create example.org',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'all zones',
        example: 'nebo zone list --search shop',
        call: 'GET /dns/zones',
        rows: 'ZONE',
      },
      {
        usage: 'show ZONE',
        alias: 'get',
        summary: 'one zone',
        example: 'nebo zone show example.org',
        call: 'GET /dns/zones/{zone_id}',
      },
      {
        usage: 'create NAME=name',
        summary: 'a new zone; its name servers are what the registrar needs',
        example: 'nebo zone create example.org --default-ttl 300',
        call: 'POST /dns/zones',
        says: 'Delegate it to its name servers at the registrar, then: nebo zone verify ZONE',
      },
      {
        usage: 'update ZONE',
        summary: 'change a zone',
        example: 'nebo zone update example.org --default-ttl 3600',
        call: 'PATCH /dns/zones/{zone_id}',
      },
      {
        usage: 'verify ZONE',
        summary: 'look whether the zone is delegated here',
        example: 'nebo zone verify example.org --columns status,status_reason',
        call: 'POST /dns/zones/{zone_id}/verify',
      },
      {
        usage: 'delete ZONE',
        alias: 'rm',
        summary: 'delete a zone with its records',
        example: 'nebo zone delete example.org',
        call: 'DELETE /dns/zones/{zone_id}',
        ask: 'ZONE',
      },
    ],
  },
  {
    name: 'record',
    summary: 'records of a DNS zone',
    example: 'nebo record add example.org www A 203.0.113.7',
    verbs: [
      {
        usage: 'list ZONE',
        alias: 'ls',
        summary: 'records of a zone',
        example: 'nebo record list example.org --type A',
        call: 'GET /dns/zones/{zone_id}/dns_records',
        rows: 'RECORD',
      },
      {
        usage: 'show ZONE RECORD',
        alias: 'get',
        summary: 'one record',
        example: 'nebo record show example.org www',
        call: 'GET /dns/zones/{zone_id}/dns_records/{record_id}',
      },
      {
        usage: 'add ZONE NAME=name TYPE=type CONTENT=content',
        alias: 'create',
        summary: 'a new record; "@" is the zone itself',
        example: 'nebo record add example.org www A 203.0.113.7 --ttl 300',
        call: 'POST /dns/zones/{zone_id}/dns_records',
      },
      {
        usage: 'update ZONE RECORD',
        summary: 'change a record',
        example: 'nebo record update example.org www --content 203.0.113.8',
        call: 'PATCH /dns/zones/{zone_id}/dns_records/{record_id}',
      },
      {
        usage: 'delete ZONE RECORD',
        alias: 'rm',
        summary: 'delete a record; by its id where several have its name',
        example: 'nebo record delete example.org www',
        call: 'DELETE /dns/zones/{zone_id}/dns_records/{record_id}',
        ask: 'RECORD',
      },
    ],
  },
  {
    name: 'domain',
    summary: 'domains of an app',
    example: 'nebo domain add www.example.org --app shop',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'domains of an app',
        example: 'nebo domain list --app shop',
        call: 'GET /apps/{app_id}/domains',
        rows: 'DOMAIN',
      },
      {
        usage: 'show DOMAIN',
        alias: 'check',
        summary: 'one domain: its status, the record to set, why it does not work yet',
        example: 'nebo domain show www.example.org --app shop',
        call: 'GET /apps/{app_id}/domains',
        fromList: 'DOMAIN',
      },
      {
        usage: 'add DOMAIN=domain',
        alias: 'create',
        summary: 'serve the app under a domain; its certificate comes by itself',
        example: 'nebo domain add www.example.org --app shop',
        call: 'POST /apps/{app_id}/domains',
        says: 'In a zone of this account the record is made; elsewhere point the name to target_ip. How it goes: nebo domain show DOMAIN',
      },
      {
        usage: 'remove DOMAIN',
        alias: 'rm',
        summary: 'take a domain from an app',
        example: 'nebo domain remove www.example.org --app shop',
        call: 'DELETE /apps/{app_id}/domains/{domain_id}',
        ask: 'DOMAIN',
      },
    ],
  },
  {
    name: 'cert',
    summary: 'certificates of custom domains',
    example: 'nebo cert list --domain www.example.org',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'all certificates',
        example: 'nebo cert list',
        call: 'GET /certificates',
        rows: 'CERTIFICATE',
      },
    ],
  },
  {
    name: 'job',
    summary: 'cron jobs of an app',
    example: "nebo job create clean './clean.sh' --schedule '0 3 * * *' --app shop",
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'jobs of an app with their last runs',
        example: 'nebo job list --app shop',
        call: 'GET /apps/{app_id}/jobs',
        rows: 'JOB',
      },
      {
        usage: 'show JOB',
        alias: 'get',
        summary: 'one job',
        example: 'nebo job show clean --app shop',
        call: 'GET /apps/{app_id}/jobs/{job_id}',
      },
      {
        usage: 'create NAME=name COMMAND=command',
        summary: 'a new job; without --schedule it runs by hand only',
        example: "nebo job create clean './clean.sh' --schedule '0 3 * * *' --app shop",
        call: 'POST /apps/{app_id}/jobs',
      },
      {
        usage: 'update JOB',
        summary: 'change a job',
        example: 'nebo job update clean --enabled false --app shop',
        call: 'PATCH /apps/{app_id}/jobs/{job_id}',
      },
      {
        usage: 'run JOB',
        summary: 'run a job now and wait for its end',
        example: 'nebo job run clean --app shop',
        call: 'POST /apps/{app_id}/jobs/{job_id}/run',
        wait: run,
      },
      {
        usage: 'delete JOB',
        alias: 'rm',
        summary: 'delete a job',
        example: 'nebo job delete clean --app shop',
        call: 'DELETE /apps/{app_id}/jobs/{job_id}',
        ask: 'JOB',
      },
    ],
  },
  {
    name: 'run',
    summary: 'runs of the jobs of an app',
    example: 'nebo run list --job clean --app shop',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'runs, newest first',
        example: 'nebo run list --job clean --app shop',
        call: 'GET /apps/{app_id}/job-runs',
        rows: 'RUN',
      },
      {
        usage: 'show RUN',
        alias: 'get',
        summary: 'one run',
        example: 'nebo run show ID --app shop',
        call: 'GET /apps/{app_id}/job-runs/{run_id}',
      },
      {
        usage: 'logs RUN',
        summary: 'the last lines that a run wrote',
        example: 'nebo run logs ID --app shop',
        call: 'GET /apps/{app_id}/job-runs/{run_id}',
        prints: 'log_tail',
      },
    ],
  },
];

/** Further verbs of kinds that have commands of their own too. */
export const moreVerbs: Readonly<Record<string, readonly Verb[]>> = {
  project: [
    {
      usage: 'create NAME=name',
      summary: 'a new project',
      example: 'nebo project create shop',
      call: 'POST /projects',
    },
    {
      usage: 'update PROJECT',
      summary: 'change a project',
      example: 'nebo project update shop --description Shop',
      call: 'PATCH /projects/{project_id}',
    },
    {
      usage: 'delete PROJECT',
      alias: 'rm',
      summary: 'delete an empty project',
      example: 'nebo project delete shop',
      call: 'DELETE /projects/{project_id}',
      ask: 'PROJECT',
    },
  ],
  app: [
    {
      usage: 'update APP',
      summary: 'change an app: size, replicas, network, readiness',
      example: 'nebo app update shop --replica-count 2',
      call: 'PATCH /apps/{app_id}',
    },
    {
      usage: 'delete APP',
      alias: 'rm',
      summary: 'delete an app with its builds, variables and domains',
      example: 'nebo app delete shop',
      call: 'DELETE /apps/{app_id}',
      ask: 'APP',
    },
    {
      usage: 'deliveries',
      summary: 'what the git host said of the repository, and what became of it',
      example: 'nebo app deliveries --app shop',
      call: 'GET /apps/{app_id}/deliveries',
      rows: 'DELIVERY',
    },
  ],
  build: [
    {
      usage: 'cancel BUILD',
      summary: 'call off a build that waits or runs',
      example: 'nebo build cancel ID --app shop',
      call: 'POST /apps/{app_id}/builds/{build_id}/cancel',
    },
    {
      usage: 'rebuild BUILD',
      summary: 'build the same source again and wait until it serves',
      example: 'nebo build rebuild ID --app shop',
      call: 'POST /apps/{app_id}/builds/{build_id}/rebuild',
      wait: 'build',
    },
    {
      usage: 'rollback BUILD',
      summary: 'serve an earlier build again',
      example: 'nebo build rollback ID --app shop',
      call: 'POST /apps/{app_id}/builds/{build_id}/rollback',
      wait: 'build',
    },
  ],
};
