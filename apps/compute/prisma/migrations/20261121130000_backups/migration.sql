-- Bytes in the blob store: of images, and of backups. What no image, backup or restore names is collected after a day.
create table blob (
  sha256 text primary key,
  bytes bigint not null,
  stored_at timestamptz not null default now()
);
create index blob_stored on blob (stored_at);

-- Null: an image that the region's agent brings itself, by its file name.
alter table image
  add column sha256 text,
  add column bytes bigint,
  -- Not offered any more; machines that were made of it keep it.
  add column withdrawn_at timestamptz;
create index image_blob on image (sha256) where sha256 is not null;
create index vm_image on vm (image_id);

-- `restore_number` rises with every restore. The bytes are held until the region reports a disk that was made of them.
alter table vm
  add column restore_number integer not null default 0,
  add column restore_sha256 text,
  add column restore_bytes bigint;
create index vm_restoring on vm (restore_sha256) where restore_sha256 is not null;

create table vm_backup (
  id uuid primary key,
  account_id uuid not null,
  vm_id uuid not null references vm (id) on delete cascade,
  region_id uuid not null,
  name text not null,
  description text,
  -- The least disk of a machine that is made of it.
  disk_gb integer not null,
  -- Where the life stands; written by the lifecycle only, with the reason of a failure.
  phase text not null default 'pending',
  reason text,
  -- Intent. Wanted of the region while it is to be made; `handed` once an agent may have read it.
  deleted_at timestamptz,
  handed boolean not null default false,
  gone boolean not null default false,
  generation integer not null default 1,
  change bigint,
  -- Observed by the region.
  observed_generation integer,
  observed_state text,
  observed_reason text,
  observed_facts jsonb,
  observed_at timestamptz,
  -- What was made.
  sha256 text,
  bytes bigint,
  consistency text,
  simulated boolean,
  created_at timestamptz not null default now()
);
create index vm_backup_listed on vm_backup (vm_id, created_at, id);
create index vm_backup_blob on vm_backup (sha256) where sha256 is not null;
create index vm_backup_changed on vm_backup (region_id, change);
create index vm_backup_unnumbered on vm_backup (region_id) where change is null;

alter table vm_backup enable row level security;
alter table vm_backup force row level security;
create policy tenant on vm_backup
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

-- Numbers of a region's feed for backups, under the feed's row lock like those of machines; to be called before
-- `number_wanted`, which says how far the feed goes.
create function number_backups(region uuid) returns void language plpgsql as $$
begin
  insert into feed (name) values ('wanted:' || region) on conflict do nothing;
  perform 1 from feed where name = 'wanted:' || region for update;
  update vm_backup set change = nextval('change_number'), handed = true
    where id in (select id from vm_backup where region_id = region and change is null for update skip locked);
end $$;

create function vm_backup_wanted() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    perform changed('wanted:' || new.region_id);
  elsif new.generation <> old.generation then
    new.change := null;
    perform changed('wanted:' || new.region_id);
  end if;
  return new;
end $$;
create trigger vm_backup_wanted before insert or update on vm_backup for each row execute function vm_backup_wanted();

-- One that goes, also with its machine, ends its life; an agent that has not heard of its end gets everything at its next
-- look instead of a delta with a hole.
create function vm_backup_seen() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    update feed set pruned = greatest(pruned, old.change)
      where name = 'wanted:' || old.region_id and old.change is not null;
    update lifecycle set wakes = wakes + 1, run_at = now() where kind = 'backup' and id = old.id and ended_at is null;
    perform changed('backup:' || old.id);
  elsif (new.phase, new.deleted_at) is distinct from (old.phase, old.deleted_at) then
    perform changed('backup:' || old.id);
  end if;
  return null;
end $$;
create trigger vm_backup_seen after update or delete on vm_backup for each row execute function vm_backup_seen();
