-- What all rooms use: the clock of the store, which server it is on, and whose turn it is.

-- The store's clock: every statement asks it and no other. Tests replace it by one with an offset.
create function duly_now() returns timestamptz language sql volatile parallel safe
    as 'select clock_timestamp()';

-- The name of a channel of NOTIFY in this schema.
create function {{schema}}.duly_channel(name text) returns text language sql immutable parallel safe
    as $$ select case '.{{schema}}' when '.public' then name else left(name || '_{{schema}}', 63) end $$;

-- The lowest task id of an instant: ids are UUIDv7s, and begin with their milliseconds since 1970.
create function duly_first_id(instant timestamptz) returns uuid language sql immutable parallel safe
    as 'select (lpad(to_hex((extract(epoch from instant) * 1000)::int8), 12, ''0'') || repeat(''0'', 20))::uuid';

-- Timeline and start of the server that answers; an error on a standby. Where a managed Postgres does not tell its
-- timeline, the start alone has to do.
create function duly_server() returns text language plpgsql as '
begin
    return left(pg_walfile_name(pg_current_wal_lsn()), 8) || ''/'' || extract(epoch from pg_postmaster_start_time());
exception when undefined_function or insufficient_privilege or feature_not_supported then
    return ''-/'' || extract(epoch from pg_postmaster_start_time());
end';

-- Who holds a row is alone in what it names, until its transaction ends. Rows, and no advisory locks: any login of Postgres may
-- take those, and would stop Duly.
create table turn (name text primary key);
insert into turn (name) values ('registry'), ('upkeep');

-- Which server the store was last found on, and since when: one row. A promoted standby, or a restored backup, carries
-- what its predecessor was: whoever finds another server than the row says writes the new one, and from then on all know
-- that leases may be older than they look.
create table store_epoch (
    one boolean primary key default true check (one),
    server text not null,
    -- null: the same server since the schema was made
    changed_at timestamptz check (isfinite(changed_at))
);
insert into store_epoch (server) select duly_server();
