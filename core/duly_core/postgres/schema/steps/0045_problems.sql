-- What is wrong now: the incident board.
-- step: expand
create table problem_board (
    is_only boolean primary key default true check (is_only),
    begun_at timestamptz not null,
    begun_by text not null check (octet_length(begun_by) <= 512),
    computed_at timestamptz,
    took interval,
    computed_by text check (octet_length(computed_by) <= 512)
);
insert into problem_board (begun_at, begun_by) values ('epoch', '');
create table problem (
    problem_id bigint generated always as identity primary key,
    fingerprint text not null check (octet_length(fingerprint) = 16),
    kind smallint not null,
    severity smallint not null check (severity between 1 and 3),
    subject text not null check (octet_length(subject) <= 2048),
    since_at timestamptz not null,
    ended_at timestamptz,
    facts jsonb not null check (octet_length(facts::text) <= 262144)
);
create unique index problem_open on problem (fingerprint) where ended_at is null;
create index problem_ended on problem (ended_at) where ended_at is not null;
