-- What statements share about pools.

-- fragment: leads
-- The row of the lease, if the autoscaler that asks leads. It stays so until the statement's transaction ends.
select lease.fence from autoscaler_lease as lease
where lease.holder = %(holder)b::text and lease.fence = %(fence)b::int8 and lease.until_at > duly_now()
for share
