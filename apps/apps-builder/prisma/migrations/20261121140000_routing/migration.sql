-- Compiled rules of the build's routing file; null: it has none.
alter table build add column routing jsonb;
