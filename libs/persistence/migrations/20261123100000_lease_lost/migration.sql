-- A worker's write of a life that is not its own any more fails here, so that the commit in the same round trip does not happen.
create function lease_held(written bigint) returns boolean language plpgsql immutable as $$
begin
  if written = 0 then
    raise exception 'the lease is lost' using errcode = 'NBLSE';
  end if;
  return true;
end $$;
