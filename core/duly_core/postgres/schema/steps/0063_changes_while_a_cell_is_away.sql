-- What operators changed while a cell was away.
-- step: expand
create table operator_change (
    kind text collate "C" not null check (octet_length(kind) between 1 and 32),
    name text collate "C" not null check (octet_length(name) <= 1024),
    changed_at timestamptz not null check (isfinite(changed_at)),
    primary key (kind, name)
);
