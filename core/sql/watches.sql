-- Written by `make sql` from core/duly_core/watches/watches.sql. Edit that.

-- name: is_watched
select exists (select from watch);

-- name: begin_watch
with clock as materialized (
    select duly_now() as now, pg_snapshot_xmin(pg_current_snapshot()) as xmin
), alive as (
    select count(*) as number, count(*) filter (where principal = %(principal)b::text) as own from watch
), marked as (
    insert into task_event (kind, at)
    select 0, clock.now
    from clock, alive
    where not exists (select from watch where watch_id = %(watch_id)b::uuid)
        and alive.number < %(most)b::int8 and alive.own < %(most_of_one)b::int8
    returning seq
), made as (
    insert into watch (watch_id, principal, filter, source, began_xid, began_seq, began_at, keep_for, until_at)
    select %(watch_id)b::uuid, %(principal)b::text, %(filter)b::text, duly_event_source(), clock.xmin, marked.seq, clock.now,
        %(keep_for)b::interval, clock.now + %(keep_for)b::interval
    from clock, marked
    on conflict do nothing
    returning watch_id
), keyed as (
    insert into watch_key (key, watch_id)
    select asked.key, made.watch_id from made cross join unnest(%(keys)b::text[]) as asked (key)
)
select exists (select from made)
    or exists (select from watch where watch_id = %(watch_id)b::uuid and principal = %(principal)b::text) as is_there,
    not exists (select from watch where began_at < (select now from clock) - %(first_after)b::interval) as is_first;

-- name: renew_watch
update watch
set until_at = greatest(until_at, (select duly_now()) + keep_for)
where watch_id = %(watch_id)b::uuid and principal = %(principal)b::text
returning filter, source, duly_event_source() as source_now, began_xid::text::int8 as began_xid, began_seq, keep_for;

-- name: events_after
select head.xmin::text::int8 as xmin, head.xmax::text::int8 as xmax,
    (sweep.xid, sweep.kind, sweep.seq) > (%(xid)b::int8::text::xid8, %(kind)b::int2, %(seq)b::int8) as has_gap,
    event.xid::text::int8 as xid, event.kind, event.seq, event.at, event.lambda, event.task_id, event.graph, event.session, event.status,
    event.run, event.failure_kind, event.next_at
from (
    select pg_snapshot_xmin(pg_current_snapshot()) as xmin, pg_snapshot_xmax(pg_current_snapshot()) as xmax
) as head
cross join task_event_sweep as sweep
left join lateral (
    select *
    from task_event
    where (task_event.xid, task_event.kind, task_event.seq) > (%(xid)b::int8::text::xid8, %(kind)b::int2, %(seq)b::int8) and task_event.xid < head.xmin
    order by task_event.xid, task_event.kind, task_event.seq
    limit %(limit)b::int8
) as event on true
order by event.xid, event.kind, event.seq;

-- name: forget_watches
delete from watch where until_at < (select duly_now()) returning watch_id;

-- name: forget_events
with page as (
    select xid, kind, seq, at from task_event order by xid, kind, seq limit %(limit)b::int8
), old as (
    select xid, kind, seq from page where at < (select duly_now()) - %(older_than)b::interval
), gone as (
    delete from task_event using old where task_event.xid = old.xid and task_event.kind = old.kind and task_event.seq = old.seq
    returning task_event.xid, task_event.kind, task_event.seq
), noted as (
    update task_event_sweep
    set xid = gone.xid, kind = gone.kind, seq = gone.seq
    from (select xid, kind, seq from gone order by xid desc, kind desc, seq desc limit 1) as gone
    where (task_event_sweep.xid, task_event_sweep.kind, task_event_sweep.seq) < (gone.xid, gone.kind, gone.seq)
)
select count(*) from gone;
