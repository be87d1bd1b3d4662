-- name: put_resource
select is_done, is_expected, wrong, put_at, rate_is_new, is_created, changed, new_capacity, new_per_key, new_note, new_rate,
    new_period, new_burst, is_kept
from duly_set_resource(
    %(name)b::text, %(named)b::text[], %(capacity)b::int4, %(per_key)b, %(note)b::text, %(units)b::int4,
    %(period)b::interval, %(burst)b::int4, %(expected_at)b::timestamptz,
    %(set_by)b::text, %(owner)b::text, %(version)b::text
)

-- name: release_parked
select lambdas, next_key, has_more from duly_release_parked(%(name)b::text, %(from_key)b::text)

-- name: forget_starts
select duly_forget_starts(%(name)b::text, %(from_key)b::text)

-- name: settle_rate
update resource set rate_is_new = false where name = %(name)b::text and changed_at = %(put_at)b::timestamptz returning name

-- name: end_delays
select lambdas, next_id from duly_end_delays(%(names)b::text[], %(after)b::uuid)

-- name: delete_resource
select duly_delete_resource(%(name)b::text)

-- name: release_skipped
select lambda from duly_release_skipped(%(limit)b::int4) as lambda
