-- A version's command before it serves is begun once, whoever looks after the rollout.
create unique index job_run_predeploy on job_run (revision_id) where kind = 'predeploy';
