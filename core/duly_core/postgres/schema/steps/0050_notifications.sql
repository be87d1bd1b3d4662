-- Notifications: what targets were told of problems.
-- step: expand
create table notification_target (
    target text collate "C" primary key check (octet_length(target) between 1 and 64),
    begun_at timestamptz not null default 'epoch',
    begun_by text not null default '' check (octet_length(begun_by) <= 512),
    finished_at timestamptz,
    told jsonb not null default '{}' check (octet_length(told::text) <= 4194304),
    last_success_at timestamptz,
    last_failure_at timestamptz,
    failure text not null default '' check (octet_length(failure) <= 2048),
    failures integer not null default 0,
    failing_since timestamptz,
    next_attempt_at timestamptz
);
