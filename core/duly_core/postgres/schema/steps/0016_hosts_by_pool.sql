-- Hosts are found by their pools.
-- step: index
-- locks: host share update exclusive
-- reads: host
create index concurrently host_by_pool on host (pool) where pool <> '';
