-- The directory of cells, as this store keeps it. No rows: a sole store.

-- One row. Other cells have copies; the newest version holds.
create table cell_directory (
    one boolean primary key default true check (one),
    -- Tells installations apart.
    installation uuid not null,
    version bigint not null check (version >= 1),
    -- The name of the cell that this store is.
    own_cell text not null check (octet_length(own_cell) between 1 and 32),
    -- The cell of all namespaces that have no row below.
    default_cell text not null check (octet_length(default_cell) between 1 and 32),
    -- fenced: the store refuses writes, for its cell moves to another place.
    state text not null default 'active' check (state in ('active', 'fenced')),
    written_at timestamptz not null
);

create table cell (
    name text collate "C" primary key check (octet_length(name) between 1 and 32),
    -- A libpq connection string or URI, without a password.
    address text not null check (octet_length(address) between 1 and 2048),
    schema_name text not null check (octet_length(schema_name) between 1 and 40)
);

create table cell_namespace (
    namespace text collate "C" primary key check (octet_length(namespace) between 1 and 128),
    cell text not null check (octet_length(cell) between 1 and 32)
);

-- What operators changed while a cell was away. A cell with an older moment than another, or with none, lacks the change. The row of the
-- kind `settled` says up to when all cells have all changes: rows that are not newer say nothing any more.
create table operator_change (
    kind text collate "C" not null check (octet_length(kind) between 1 and 32),
    name text collate "C" not null check (octet_length(name) <= 1024),
    changed_at timestamptz not null check (isfinite(changed_at)),
    primary key (kind, name)
);
