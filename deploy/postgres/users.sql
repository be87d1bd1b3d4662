-- Users of Postgres for Duly's processes, each with a password of its own. Run once, by an administrator, in the
-- database that Duly shall use; compose.yaml does so when its Postgres starts for the first time.
-- The server reads each password from a file named after the user, in /run/secrets. Where it cannot read files, as on
-- RDS, write `create role ... password '...'` by hand (docs/operators/install.md).

-- What a service may do is given to these by `duly migrate --roles`.
create role duly_frontend nologin;
create role duly_store_consumer nologin;
create role duly_hsc nologin;
create role duly_autoscaler nologin;
create role duly_client nologin;

do $$
declare
    login text;
begin
    foreach login in array array['duly', 'frontend_user', 'store_consumer_user', 'hsc_user', 'autoscaler_user', 'server_user'] loop
        execute format(
            'create role %I login password %L',
            login,
            trim(trailing E'\n' from pg_read_file('/run/secrets/' || login))
        );
    end loop;
    -- it owns the tables, and only `duly migrate` connects as it
    execute format('alter database %I owner to duly', current_database());
end $$;
alter schema public owner to duly;

grant duly_frontend to frontend_user;
grant duly_store_consumer to store_consumer_user;
grant duly_hsc to hsc_user;
grant duly_autoscaler to autoscaler_user;
grant duly_frontend, duly_store_consumer, duly_hsc to server_user;
