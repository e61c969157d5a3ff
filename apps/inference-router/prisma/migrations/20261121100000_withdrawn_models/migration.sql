-- Models that the operator took from sale. A model without a row is offered; its requests that run finish at their price.
create table withdrawn_model (
  model_id text primary key,
  withdrawn_at timestamptz not null default now()
);
