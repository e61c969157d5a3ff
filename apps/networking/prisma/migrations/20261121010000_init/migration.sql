-- The schema of networking; its tables come with the issue that builds the service.
select 1;
