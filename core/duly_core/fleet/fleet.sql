-- name: report_host
insert into host as known (
    host_id, name, version, queue_backend, started_at, first_reported_at, reported_at, report_interval, draining, stopped,
    reported_by, executors, settings_read_at, clock_ahead, pool
)
select %(host_id)b::text, %(name)b::text, %(version)b::text, %(queue_backend)b::text, %(started_at)b::timestamptz, now, now,
    %(interval)b::interval, %(draining)b::boolean, %(stopped)b::boolean, %(reported_by)b::text, %(executors)b::jsonb,
    now - %(settings_age)b::interval, %(clock_ahead)b::interval, %(pool)b::text
from (select duly_now() as now) as clock
on conflict (host_id) do update
set name = excluded.name, version = excluded.version, queue_backend = excluded.queue_backend,
    started_at = excluded.started_at, reported_at = excluded.reported_at, report_interval = excluded.report_interval,
    draining = excluded.draining, stopped = excluded.stopped, executors = excluded.executors,
    settings_read_at = excluded.settings_read_at, clock_ahead = excluded.clock_ahead, pool = excluded.pool
where known.reported_by = excluded.reported_by
returning known.reported_at, known.lambdas_digest = %(digest)b::bytea, known.drain_requested_at is not null

-- name: report_host_lambdas
with served (lambda, lambda_set, version) as materialized (
    select * from unnest(%(lambdas)b::text[], %(sets)b::int2[], %(versions)b::text[])
), gone as (
    delete from host_lambda as old
    where old.host_id = %(host_id)b::text and not exists (
        select from served where served.lambda = old.lambda and served.lambda_set = old.lambda_set
    )
), marked as (
    update host set lambdas_digest = %(digest)b::bytea where host_id = %(host_id)b::text
)
insert into host_lambda as known (host_id, lambda, lambda_set, version)
select distinct on (lambda, lambda_set) %(host_id)b::text, lambda, lambda_set, version from served
order by lambda, lambda_set
on conflict (host_id, lambda, lambda_set) do update set version = excluded.version
where known.version <> excluded.version

-- name: count_hosts
select {{host_state}} as state, count(*) from host group by 1

-- name: report_service
insert into service_instance (
    instance_id, service, host_name, version, address, started_at, reported_at, report_interval, stopped,
    settings_read_at, clock_ahead, schema_version
)
values (
    %(instance_id)b::text, %(service)b::text, %(host_name)b::text, %(version)b::text, %(address)b::text,
    %(started_at)b::timestamptz, duly_now(), %(interval)b::interval, %(stopped)b::boolean,
    duly_now() - %(settings_age)b::interval, %(clock_ahead)b::interval, %(schema_version)b::text
)
on conflict (instance_id) do update
set reported_at = excluded.reported_at, stopped = excluded.stopped, settings_read_at = excluded.settings_read_at,
    clock_ahead = excluded.clock_ahead
returning instance_id

-- name: store_now
select duly_now()

-- name: count_skewed
-- Of what is alive
select 'host', count(*) from host
where {{host_state}} in ('alive', 'draining') and host.clock_ahead not between -%(most)b::interval and %(most)b::interval
union all
select 'service', count(*) from (select *, false as draining from service_instance) as each
where {{instance_state}} = 'alive' and each.clock_ahead not between -%(most)b::interval and %(most)b::interval

-- name: clock_of_holder
select host.host_id, host.name, host.clock_ahead
from host
where host.executors @> jsonb_build_array(jsonb_build_object('executor_id', %(holder)b::text))
order by host.reported_at desc
limit 1

-- name: list_services
select instance_id, service, host_name, version, address, {{instance_state}}, started_at, reported_at, clock_ahead
from (select *, false as draining from service_instance) as each
where not %(alive)b::boolean
    or not each.stopped and each.reported_at > duly_now() - {{hosts.missed_reports}} * each.report_interval
order by each.stopped, each.reported_at < duly_now() - {{hosts.missed_reports}} * each.report_interval, each.service, each.instance_id
limit 1000

-- name: setting_users
select service, instance_id, settings_read_at from service_instance
where not stopped and reported_at > duly_now() - {{hosts.missed_reports}} * report_interval
union all
select 'host', host_id, settings_read_at from host
where not stopped and reported_at > duly_now() - {{hosts.missed_reports}} * report_interval
order by 1, 2
limit 10000
