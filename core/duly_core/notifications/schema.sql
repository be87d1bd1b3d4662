-- Notifications of problems (decision 0106): a row for each target that some Frontend has in its settings.
create table notification_target (
    target text collate "C" primary key check (octet_length(target) between 1 and 64),
    -- A Frontend that begins a round writes begun_at first, as with problem_board. Only the one that began last writes what came of it.
    begun_at timestamptz not null default 'epoch',
    begun_by text not null default '' check (octet_length(begun_by) <= 512),
    finished_at timestamptz,
    -- What was told, and the message under way, which is written before it is sent: names and numbers, no payloads and no addresses.
    told jsonb not null default '{}' check (octet_length(told::text) <= 4194304),
    last_success_at timestamptz,
    last_failure_at timestamptz,
    -- Why the last delivery failed. It names no address.
    failure text not null default '' check (octet_length(failure) <= 2048),
    -- Deliveries that failed in a row, and since when. Null: the last one succeeded.
    failures integer not null default 0,
    failing_since timestamptz,
    -- The message under way is not sent again before.
    next_attempt_at timestamptz
);
