-- Attachments: what is stored, and which tasks use it. The content is elsewhere (decision 0073).

-- One for each content of a namespace. Its parts are stored under `blob`: each upload has one of its own, so whoever removes the parts of
-- an old one never removes those of a new one.
create table attachment (
    namespace text collate "C" not null,
    hash bytea not null check (octet_length(hash) = 32),
    size_bytes bigint not null check (size_bytes >= 0),
    -- Of each part 32 bytes, one after the other.
    part_hashes bytea not null,
    blob uuid not null unique,
    begun_at timestamptz not null,
    -- When a caller last said that it is about to use it: from then on it stays for a while, though no task uses it.
    touched_at timestamptz not null,
    -- When all of its parts were there; null: tasks may not use it yet.
    stored_at timestamptz,
    -- Since when its parts are removed. Tasks may not use it any more.
    removing_at timestamptz,
    primary key (namespace, hash)
);
create index attachment_removing on attachment (removing_at) where removing_at is not null;

-- Which task uses what. Written by the transaction that writes the task, or the end of the run that kept it. A use keeps its attachment:
-- whoever writes it locks the attachment, and finds that it is not being removed. Removed with the task, or soon after it.
create table attachment_use (
    task_id uuid not null,
    -- False: an input of the task. True: the last run that kept anything kept it.
    by_run boolean not null,
    position smallint not null,
    role smallint not null,
    namespace text collate "C" not null,
    hash bytea not null,
    size_bytes bigint not null,
    name text not null check (octet_length(name) between 1 and 255),
    media_type text not null,
    primary key (task_id, by_run, position)
);
create index attachment_use_of on attachment_use (namespace, hash);

-- How many bytes the attachments of a namespace have, those whose uploads are under way included. Changed by the transactions that
-- write and remove them. Its row is the lock of a namespace: who begins an upload has it.
create table attachment_usage (
    namespace text collate "C" primary key,
    bytes bigint not null check (bytes >= 0)
);

-- Which store of blobs is this database's: the same name stands in the store. Blobs of another database are not removed.
create table attachment_store (
    one boolean primary key default true check (one),
    store_id uuid not null default gen_random_uuid(),
    -- The last sweeps, the newest first: the store has one of these, unless a copy of this database has swept it.
    turns uuid[] not null default '{}'
);
insert into attachment_store (one) values (true);
