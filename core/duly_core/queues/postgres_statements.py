"""Every statement of the Postgres queue, over `queue_message` (one row a message).

A row is hidden from receivers until its `visible_at`. Time is the database's own: `duly_now()`,
as a scalar subselect so that it is read once a statement. What is prepared is planned once, perhaps for a
table that is empty, and so written that there is no way but the right index (decision 0019).
"""

from typing import Final, LiteralString

# Adds messages, and wakes who waits for one of their queues (postgres_notification.py says how they are
# named). One notification a statement: a commit that notifies takes a lock of the whole server.
SEND: Final[LiteralString] = """
with sent as (
    insert into queue_message (lambda, priority, reference_count, visible_at, body)
    select m.lambda, m.priority, m.reference_count, (select duly_now()), m.body
    from unnest(%(lambdas)b::text[], %(priorities)b::smallint[], %(counts)b::int[], %(bodies)b::bytea[])
        with ordinality as m (lambda, priority, reference_count, body, position)
    order by m.position
)
select pg_notify('duly_queue', %(queues)b)
"""

# Counts the references of each queue, hidden ones too: they are not done with.
DEPTH: Final[LiteralString] = """
select q.lambda, q.priority, held.number
from unnest(%(lambdas)b::text[], %(priorities)b::smallint[]) as q (lambda, priority) cross join lateral (
    select sum(m.reference_count)::bigint as number
    from queue_message m
    where m.lambda = q.lambda and m.priority = q.priority
) as held
where held.number > 0
"""

# Takes the oldest visible messages of one queue and hides them; passes over those that another
# receiver is taking. (message, visible_at) is the receipt: it changes at every delivery.
RECEIVE: Final[LiteralString] = """
with taken as materialized (
    select message_id, lambda, priority, visible_at from queue_message
    where lambda = %(lambda)b and priority = %(priority)b::smallint and visible_at <= (select duly_now())
    order by visible_at, message_id
    limit %(max_messages)b
    for update skip locked
)
update queue_message m set visible_at = (select duly_now()) + %(visibility)b
from taken
where m.message_id = any (array[taken.message_id]) and m.lambda = any (array[taken.lambda])
    and m.priority = any (array[taken.priority]) and m.visible_at = any (array[taken.visible_at])
returning m.message_id, m.visible_at, m.body
"""

# (Not prepared.) Deletes messages whose receipts still hold: one that was delivered again since belongs to another.
DELETE: Final[LiteralString] = """
delete from queue_message m
using unnest(%(message_ids)b::bigint[], %(visible_ats)b::timestamptz[]) as r (message_id, visible_at)
where m.message_id = r.message_id and m.visible_at = r.visible_at
"""

# (Not prepared.) Makes messages visible at once whose receipts still hold, and wakes who waits for their queues.
GIVE_BACK: Final[LiteralString] = """
with given_back as (
    update queue_message m set visible_at = (select duly_now())
    from unnest(%(message_ids)b::bigint[], %(visible_ats)b::timestamptz[]) as r (message_id, visible_at)
    where m.message_id = r.message_id and m.visible_at = r.visible_at
)
select pg_notify('duly_queue', %(queues)b)
"""

# Starts to hear of new messages.
LISTEN: Final[LiteralString] = "listen duly_queue"

# Answers which of some queues hold a visible message.
READY: Final[LiteralString] = """
select q.lambda, q.priority
from unnest(%(lambdas)b::text[], %(priorities)b::smallint[]) as q (lambda, priority)
where exists (
    select from queue_message m
    where m.lambda = q.lambda and m.priority = q.priority and m.visible_at <= (select duly_now())
)
"""
