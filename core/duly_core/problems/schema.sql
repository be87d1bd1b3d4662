-- What is wrong now (the incident board), as a Frontend found it in its last round.

-- One row. A Frontend that begins a round writes begun_at first: one Frontend at a time looks, and only the one that began last
-- publishes what it found.
create table problem_board (
    is_only boolean primary key default true check (is_only),
    begun_at timestamptz not null,
    begun_by text not null check (octet_length(begun_by) <= 512),
    -- Of the last round that was published; null: none was.
    computed_at timestamptz,
    took interval,
    computed_by text check (octet_length(computed_by) <= 512)
);
insert into problem_board (begun_at, begun_by) values ('epoch', '');

-- A problem keeps its row while it lasts, and so says since when it does. Kept for a day after its end.
create table problem (
    problem_id bigint generated always as identity primary key,
    -- Of kind, subject and key.
    fingerprint text not null check (octet_length(fingerprint) = 16),
    -- ProblemKind.
    kind smallint not null,
    severity smallint not null check (severity between 1 and 3),
    subject text not null check (octet_length(subject) <= 2048),
    since_at timestamptz not null,
    -- Null: it lasts.
    ended_at timestamptz,
    -- Whom it hits, with counts, and what its sentence needs: names and numbers, no payloads.
    facts jsonb not null check (octet_length(facts::text) <= 262144)
);
create unique index problem_open on problem (fingerprint) where ended_at is null;
create index problem_ended on problem (ended_at) where ended_at is not null;
