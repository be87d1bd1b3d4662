-- A part of the new tasks of a lambda goes to one of its versions.
-- step: expand
create table lambda_ramp (
    lambda text primary key check (octet_length(lambda) <= 2048),
    to_version text not null check (octet_length(to_version) between 1 and 64),
    permille integer not null check (permille between 0 and 1000),
    changed_at timestamptz not null
);
