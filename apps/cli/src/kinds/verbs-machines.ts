import type { VerbGroup, WaitSpec } from './verbs.js';

const vm: WaitSpec = {
  read: '/vms/{vm_id}',
  field: 'status',
  good: ['active'],
  bad: ['error', 'failed'],
  reason: 'status_reason',
};
const backup: WaitSpec = {
  read: '/vms/{vm_id}/backups/{backup_id}',
  field: 'status',
  good: ['ready'],
  bad: ['error'],
  reason: 'error',
};
const gone = (wait: WaitSpec): WaitSpec => ({ ...wait, good: [], bad: [], gone: true });

/** Machines, and what they are made of. */
export const machineVerbs: readonly VerbGroup[] = [
  {
    name: 'vm',
    summary: 'virtual machines',
    example: 'nebo vm start web-1',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'all machines',
        example: 'nebo vm list',
        call: 'GET /vms',
        rows: 'VM',
        hidden: ['project_id'],
      },
      {
        usage: 'show VM',
        alias: 'get',
        summary: 'one machine',
        example: 'nebo vm show web-1',
        call: 'GET /vms/{vm_id}',
      },
      {
        usage: 'create NAME=name',
        summary: 'order a machine and wait until it runs; its first period is paid at once',
        example:
          'nebo vm create web-1 --hostname web-1 --image debian-13 --plan small --region local --default-user debian --ssh-key ann',
        call: 'POST /projects/{project_id}/vms',
        wait: { ...vm, made: 'vm_id' },
      },
      {
        usage: 'update VM',
        summary: 'change a machine: name, plan, disk, renewal',
        example: 'nebo vm update web-1 --auto-renew true',
        call: 'PATCH /vms/{vm_id}',
      },
      {
        usage: 'start VM',
        summary: 'start a machine',
        example: 'nebo vm start web-1',
        call: 'POST /vms/{vm_id}/start',
        wait: vm,
        hidden: ['idempotency_key'],
      },
      {
        usage: 'stop VM',
        summary: 'stop a machine',
        example: 'nebo vm stop web-1',
        call: 'POST /vms/{vm_id}/stop',
        wait: { ...vm, good: ['stopped'] },
      },
      {
        usage: 'restart VM',
        summary: 'restart a machine',
        example: 'nebo vm restart web-1',
        call: 'POST /vms/{vm_id}/restart',
        wait: vm,
      },
      {
        usage: 'delete VM',
        alias: 'rm',
        summary: 'delete a machine with its disk and backups',
        example: 'nebo vm delete web-1',
        call: 'DELETE /vms/{vm_id}',
        ask: 'VM',
        wait: gone(vm),
      },
    ],
  },
  {
    name: 'backup',
    summary: 'backups of a machine',
    example: 'nebo backup create web-1 before-upgrade',
    verbs: [
      {
        usage: 'list VM',
        alias: 'ls',
        summary: 'backups of a machine',
        example: 'nebo backup list web-1',
        call: 'GET /vms/{vm_id}/backups',
        rows: 'BACKUP',
      },
      {
        usage: 'show VM BACKUP',
        alias: 'get',
        summary: 'one backup',
        example: 'nebo backup show web-1 before-upgrade',
        call: 'GET /vms/{vm_id}/backups/{backup_id}',
      },
      {
        usage: 'create VM NAME=name',
        summary: 'make a backup and wait until it is ready',
        example: 'nebo backup create web-1 before-upgrade',
        call: 'POST /vms/{vm_id}/backups',
        wait: { ...backup, made: 'backup_id' },
      },
      {
        usage: 'restore VM BACKUP',
        summary: "put a backup on its machine's disk: what was written since is lost",
        example: 'nebo backup restore web-1 before-upgrade',
        call: 'POST /vms/{vm_id}/backups/{backup_id}/restore',
        preset: { target: 'vm' },
        hidden: ['vm'],
        ask: 'VM',
        wait: { ...vm, good: ['active', 'stopped'] },
        notes:
          'A new machine out of a backup: nebo api --describe POST /vms/{vm_id}/backups/{backup_id}/restore',
      },
      {
        usage: 'delete VM BACKUP',
        alias: 'rm',
        summary: 'delete a backup',
        example: 'nebo backup delete web-1 before-upgrade',
        call: 'DELETE /vms/{vm_id}/backups/{backup_id}',
        ask: 'BACKUP',
        wait: gone(backup),
      },
    ],
  },
  {
    name: 'ssh-key',
    summary: 'SSH keys that can be put into machines',
    example: 'nebo ssh-key add ann ~/.ssh/id_ed25519.pub',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'all SSH keys',
        example: 'nebo ssh-key list',
        call: 'GET /ssh-keys',
        rows: 'KEY',
      },
      {
        usage: 'show KEY',
        alias: 'get',
        summary: 'one SSH key',
        example: 'nebo ssh-key show ann',
        call: 'GET /ssh-keys/{key_id}',
      },
      {
        usage: 'add NAME=name FILE<public_key',
        alias: 'create',
        summary: 'a new key out of its public file, "-" for stdin',
        example: 'nebo ssh-key add ann ~/.ssh/id_ed25519.pub',
        call: 'POST /ssh-keys',
      },
      {
        usage: 'delete KEY',
        alias: 'rm',
        summary: 'forget a key; machines that have it keep it',
        example: 'nebo ssh-key delete ann',
        call: 'DELETE /ssh-keys/{key_id}',
        ask: 'KEY',
      },
    ],
  },
  {
    name: 'region',
    summary: 'regions',
    example: 'nebo region list',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'all regions',
        example: 'nebo region list',
        call: 'GET /regions',
        rows: 'REGION',
      },
    ],
  },
  {
    name: 'plan',
    summary: 'sizes of machines with their prices',
    example: 'nebo plan list',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'all plans',
        example: 'nebo plan list',
        call: 'GET /vm-plans',
        rows: 'PLAN',
      },
    ],
  },
  {
    name: 'image',
    summary: 'images that machines start from',
    example: 'nebo image list --region local',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'images of a region',
        example: 'nebo image list --region local',
        call: 'GET /projects/{project_id}/images',
        rows: 'IMAGE',
      },
    ],
  },
];
