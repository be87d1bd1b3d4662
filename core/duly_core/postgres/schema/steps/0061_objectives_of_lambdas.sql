-- Lambdas have objectives of their own.
-- step: expand
create table start_objective (
    lambda text collate "C" primary key check (octet_length(lambda) between 1 and 255 and lambda <> '*'),
    share double precision not null check (share > 0 and share < 1),
    start_within interval not null check (start_within > interval '0'),
    changed_at timestamptz not null
);
