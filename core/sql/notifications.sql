-- Written by `make sql` from core/duly_core/notifications/notifications.sql. Edit that.

-- name: begin_notifications
insert into notification_target as held (target, begun_at, begun_by)
values (%(target)b::text, duly_now(), %(by)b::text)
on conflict (target) do update
set begun_at = excluded.begun_at, begun_by = excluded.begun_by
where held.begun_at <= duly_now() - %(every)b::interval
        and (
            coalesce(held.finished_at >= held.begun_at, held.begun_at = 'epoch')
            or held.begun_at = %(own)b::timestamptz
            or held.begun_at <= duly_now() - %(abandoned_after)b::interval
        )
    or held.begun_at > duly_now() + interval '1 second'
returning held.begun_at, held.told, held.last_success_at, held.failures, held.next_attempt_at;

-- name: keep_told
update notification_target
set told = %(told)b::text::jsonb, next_attempt_at = null
where target = %(target)b::text and begun_at = %(begun_at)b::timestamptz
returning begun_at;

-- name: finish_notifications
update notification_target
set finished_at = duly_now(), told = coalesce(%(told)b::text::jsonb, told),
    last_success_at = case when %(delivered)b::boolean then duly_now() else last_success_at end,
    last_failure_at = case when not %(delivered)b::boolean then duly_now() else last_failure_at end,
    failure = case when not %(delivered)b::boolean then %(failure)b::text else failure end,
    failures = case when %(delivered)b::boolean then 0 when not %(delivered)b::boolean then failures + 1 else failures end,
    failing_since = case
        when %(delivered)b::boolean then null
        when not %(delivered)b::boolean then coalesce(failing_since, duly_now())
        else failing_since
    end,
    next_attempt_at = case when not %(delivered)b::boolean then duly_now() + %(pause)b::interval else next_attempt_at end
where target = %(target)b::text and begun_at = %(begun_at)b::timestamptz
returning finished_at;

-- name: note_test_of_target
insert into notification_target as tested (target, last_success_at, last_failure_at, failure)
values (
    %(target)b::text, case when %(delivered)b::boolean then duly_now() end, case when not %(delivered)b::boolean then duly_now() end,
    %(failure)b::text
)
on conflict (target) do update
set last_success_at = coalesce(excluded.last_success_at, tested.last_success_at),
    last_failure_at = coalesce(excluded.last_failure_at, tested.last_failure_at),
    failure = case when excluded.last_failure_at is null then tested.failure else excluded.failure end,
    failures = case when excluded.last_success_at is null then tested.failures else 0 end,
    failing_since = case when excluded.last_success_at is null then tested.failing_since end,
    next_attempt_at = case when excluded.last_success_at is null then tested.next_attempt_at end
returning tested.target;

-- name: read_targets
select target.target, target.last_success_at, target.last_failure_at, target.failure, target.failures, target.failing_since,
    coalesce(target.told ? 'message', false), case when target.told ? 'message' then target.next_attempt_at end
from notification_target as target
where target.target = any(%(targets)b::text[]);

-- name: failing_targets
select target.target, target.failing_since, target.failure
from notification_target as target
where target.failures >= %(failures)b::int8 and target.begun_at > duly_now() - interval '15 minutes'
order by target.failing_since
limit %(most)b::int8;
