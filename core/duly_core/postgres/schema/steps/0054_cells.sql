-- Cells: the copy of the directory that a store keeps.
-- step: expand
create table cell_directory (
    one boolean primary key default true check (one),
    installation uuid not null,
    version bigint not null check (version >= 1),
    own_cell text not null check (octet_length(own_cell) between 1 and 32),
    default_cell text not null check (octet_length(default_cell) between 1 and 32),
    state text not null default 'active' check (state in ('active', 'fenced')),
    written_at timestamptz not null
);
create table cell (
    name text collate "C" primary key check (octet_length(name) between 1 and 32),
    address text not null check (octet_length(address) between 1 and 2048),
    schema_name text not null check (octet_length(schema_name) between 1 and 40)
);
create table cell_namespace (
    namespace text collate "C" primary key check (octet_length(namespace) between 1 and 128),
    cell text not null check (octet_length(cell) between 1 and 32)
);
