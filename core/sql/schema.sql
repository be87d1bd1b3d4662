-- Written by `make sql` from schema.sql and functions.sql of the folders of core/duly_core/. Edit that.

-- What all rooms use: the clock of the store, which server it is on, and whose turn it is.

-- The store's clock: every statement asks it and no other. Tests replace it by one with an offset.
create function duly_now() returns timestamptz language sql volatile parallel safe
    as 'select clock_timestamp()';

-- The name of a channel of NOTIFY in this schema.
create function public.duly_channel(name text) returns text language sql immutable parallel safe
    as $$ select case '.public' when '.public' then name else left(name || '_public', 63) end $$;

-- The lowest task id of an instant: ids are UUIDv7s, and begin with their milliseconds since 1970.
create function duly_first_id(instant timestamptz) returns uuid language sql immutable parallel safe
    as 'select (lpad(to_hex((extract(epoch from instant) * 1000)::int8), 12, ''0'') || repeat(''0'', 20))::uuid';

-- Timeline and start of the server that answers; an error on a standby. Where a managed Postgres does not tell its
-- timeline, the start alone has to do.
create function duly_server() returns text language plpgsql as '
begin
    return left(pg_walfile_name(pg_current_wal_lsn()), 8) || ''/'' || extract(epoch from pg_postmaster_start_time());
exception when undefined_function or insufficient_privilege or feature_not_supported then
    return ''-/'' || extract(epoch from pg_postmaster_start_time());
end';

-- Who holds a row is alone in what it names, until its transaction ends. Rows, and no advisory locks: any login of Postgres may
-- take those, and would stop Duly.
create table turn (name text primary key);
insert into turn (name) values ('registry'), ('upkeep');

-- Which server the store was last found on, and since when: one row. A promoted standby, or a restored backup, carries
-- what its predecessor was: whoever finds another server than the row says writes the new one, and from then on all know
-- that leases may be older than they look.
create table store_epoch (
    one boolean primary key default true check (one),
    server text not null,
    -- null: the same server since the schema was made
    changed_at timestamptz check (isfinite(changed_at))
);
insert into store_epoch (server) select duly_server();

-- Lambdas and their versions.

-- What a lambda's owner declares, and nothing else: of its versions the one in force (decision 0041). What operators decide
-- about a lambda belongs into a table of its own (decision 0028). NAME@VERSION is the queue of tasks pinned to a version,
-- NAME@~DOMAIN that of tasks of a domain (decision 0071), NAME@:LABELS that of tasks for hosts with labels (decision 0074).
create table lambda (
    -- With its namespace before a slash, if it has one.
    name text primary key check (
        name ~ ('^([a-z0-9][a-z0-9_.-]*/)?[a-z0-9][a-z0-9_.-]*(@([A-Za-z0-9][A-Za-z0-9_.+-]{0,63})?(~[a-z0-9][a-z0-9_.-]{0,62})?'
            || '(:[a-z0-9][A-Za-z0-9_.=,-]*)?)?$')
        and length(split_part(name, '@', 1)) <= 128 and not starts_with(name, 'default/')
        and right(name, 1) <> '@' and octet_length(name) <= 2048
    ),
    owner text not null,
    version text not null,
    max_attempts integer not null check (max_attempts >= 1),
    max_crashes integer not null check (max_crashes >= 1),
    -- The time within which max_crashes crashes quarantine a task.
    crash_window interval not null default interval '3 days' check (crash_window > interval '0'),
    max_runtime interval not null check (max_runtime > interval '0'),
    backoff_initial interval not null check (backoff_initial >= interval '0'),
    backoff_factor double precision not null check (backoff_factor >= 1),
    backoff_max interval not null check (backoff_max >= backoff_initial),
    payload_limit integer not null check (payload_limit between 0 and 1048576),
    -- The labels that a host must have to serve it, with commas between them; empty: none.
    requires text not null default '' check (octet_length(requires) <= 1023),
    -- How many tasks one call of its callback takes, and how long the first of them waits for others; 0: it takes one.
    batch_size integer not null default 0 check (batch_size between 0 and 1000),
    batch_wait interval not null default interval '0' check (batch_wait between interval '0' and interval '1 minute'),
    registered_at timestamptz not null,
    updated_at timestamptz not null,
    -- Which of its declarations this is, from 1.
    revision bigint not null default 1 check (revision >= 1),
    -- The principal that declared it; empty: nobody is asked who they are.
    registered_by text not null default '',
    -- Of which resources each of its tasks takes units while it runs: JSON, as in task; null: of none.
    needs text
);
create index lambda_with_needs on lambda (name) where needs is not null;

-- The versions of a lambda that hosts declared, the one in force among them: to tell an old worker that restarts from a new
-- one, and to go back. One that is no longer in force, and was, never comes into force by itself.
create table lambda_declaration (
    like lambda including defaults excluding constraints,
    was_in_force boolean not null,
    primary key (name, version)
);

-- The ramp of a lambda: so much of its new tasks goes to the queue of one of its versions. Operators and owners decide it (decision 0098).
create table lambda_ramp (
    lambda text primary key check (octet_length(lambda) <= 2048),
    to_version text not null check (octet_length(to_version) between 1 and 64),
    permille integer not null check (permille between 0 and 1000),
    changed_at timestamptz not null
);

-- Lambdas that were deleted: a worker that still declares one of their versions does not bring them back.
create table deleted_lambda (
    name text primary key,
    owner text not null,
    version text not null,
    revision bigint not null,
    deleted_at timestamptz not null,
    deleted_by text not null
);

-- The queues of tasks that require labels of their hosts (decision 0074).

-- Adds queues that the first tasks with such labels need. Each has the policy of the queue without labels, which must be there; of one
-- there are so many at most. With its owner's rights: the HSC adds some for callbacks, and may change nothing else of lambdas.
create function public.duly_add_label_queues(names text[])
    returns void language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $function$
declare
    asked text;
    added boolean := false;
begin
    perform from turn where name = 'registry' for update;
    foreach asked in array names loop
        insert into public.lambda
        select (jsonb_populate_record(
            base,
            jsonb_build_object('name', asked, 'revision', 1, 'registered_at', public.duly_now(), 'updated_at', public.duly_now())
        )).*
        from public.lambda as base
        where base.name = rtrim(split_part(asked, ':', 1), '@') and strpos(asked, ':') > 0
            and (
                select count(*) from public.lambda as other
                where starts_with(other.name, split_part(asked, ':', 1) || ':')
            ) < 50
        on conflict (name) do nothing;
        continue when not found;
        added := true;
        delete from public.deleted_lambda where name = asked;  -- it went with its lambda, which is back
    end loop;
    if added then
        perform pg_notify(public.duly_channel('duly_lambda'), '');
    end if;
end
$function$;

-- Tokens, grants and the audit log.

-- Who may do what (decision 0038). Each change raises the version, in its transaction: servers remember the rest.
create table access_version (version bigint not null);
insert into access_version values (1);

create table access_token (
    -- SHA-256 of the token: who reads this table cannot use what it says.
    digest bytea primary key check (octet_length(digest) = 32),
    token_id text not null unique,
    principal text not null check (octet_length(principal) between 1 and 255),
    note text not null,
    created_at timestamptz not null,
    created_by text not null,
    expires_at timestamptz,
    revoked_at timestamptz
);

create table role_grant (
    principal text not null check (octet_length(principal) between 1 and 255),
    role text not null check (role in ('client', 'owner', 'host', 'operator', 'auditor')),
    -- A lambda, a prefix that ends with an asterisk, or an asterisk alone.
    pattern text not null check (octet_length(pattern) between 1 and 255),
    granted_at timestamptz not null,
    granted_by text not null,
    primary key (principal, role, pattern)
);

-- Who did what, and who was refused. Rows are added, and removed by age (store.audit_retention); nothing changes them.
create table audit_event (
    event_id bigint generated always as identity primary key,
    at timestamptz not null,
    actor text not null,
    peer text not null,
    method text not null,
    outcome text not null,
    request text not null,
    answer text not null
);
create index audit_event_by_actor on audit_event (actor, event_id);

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

-- The guards and the fence of a cell. A sole store has these functions, and no trigger that calls them.

-- Refuses every write to a table of a cell that is fenced.
create function public.duly_cell_refuse() returns trigger language plpgsql as $function$
begin
    raise exception using errcode = 'DU001', message = format('cell %s is fenced: it moves to another place',
        coalesce((select own_cell from public.cell_directory), '?'));
end $function$;

-- Refuses rows of a namespace that another cell owns. Its argument is the column that says so: `lambda` or `name` of a lambda, `key`
-- of an event, `namespace`. It runs after each statement that inserts, and sees what was committed until then. Mostly all rows are of one
-- namespace, and the first and the last tell: what lies between two texts with a common begin begins so, too. A statement with one lambda
-- tells its namespace even if it has none: `''`.
-- A transaction with one snapshot would read the directory as it was when it began: it locks the row, which is a serialization failure
-- if there is a newer version. A version that gives a namespace away waits for all who have written, so no other lock is needed.
create function public.duly_cell_guard() returns trigger language plpgsql as $function$
declare
    least text;
    most text;
    first_namespace text;
    is_own boolean;
    namespaces text[];
    stranger record;
begin
    if tg_argv[0] = 'lambda' then
        select min(lambda collate "C"), max(lambda collate "C") into least, most from written;
    elsif tg_argv[0] = 'name' then
        select min(name collate "C"), max(name collate "C") into least, most from written;
    elsif tg_argv[0] = 'key' then
        select min(key collate "C"), max(key collate "C") into least, most from written;
    else
        select min(namespace) || '/', max(namespace) || '/' into least, most from written;
    end if;
    if least is null then
        return null;
    end if;
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        perform from public.cell_directory for key share;
        if not found then
            raise exception using errcode = 'serialization_failure', message = 'this store became a cell after the transaction began';
        end if;
    end if;
    first_namespace := split_part(least, '/', 1);
    if first_namespace = least or strpos(first_namespace, '@') > 0 then
        first_namespace := '';
    end if;
    if (least = most and tg_argv[0] <> 'key') or (first_namespace <> '' and starts_with(most, first_namespace || '/')) then
        select directory.own_cell = coalesce((
            select listed.cell from public.cell_namespace as listed where listed.namespace = first_namespace
        ), directory.default_cell) into is_own
        from public.cell_directory as directory;
        if is_own then
            return null;
        end if;
    end if;
    if tg_argv[0] = 'lambda' then
        select array_agg(distinct coalesce(substring(lambda from '^([^/@]*)/'), '')) into namespaces from written;
    elsif tg_argv[0] = 'name' then
        select array_agg(distinct coalesce(substring(name from '^([^/@]*)/'), '')) into namespaces from written;
    elsif tg_argv[0] = 'key' then
        select array_agg(distinct split_part(key, '/', 1)) into namespaces from written;
    else
        select array_agg(distinct namespace) into namespaces from written;
    end if;
    select each.namespace, coalesce(listed.cell, directory.default_cell) as owner, directory.own_cell, directory.version into stranger
    from unnest(namespaces) as each (namespace)
    cross join public.cell_directory as directory
    left join public.cell_namespace as listed on listed.namespace = each.namespace
    where coalesce(listed.cell, directory.default_cell) <> directory.own_cell
    limit 1;
    if found then
        raise exception using errcode = 'DU002', table = tg_table_name, message = format(
            'namespace %s lives in cell %s, and not in cell %s (version %s of the directory)',
            coalesce(nullif(stranger.namespace, ''), 'default'), stranger.owner, stranger.own_cell, stranger.version);
    end if;
    return null;
end $function$;

-- Has all writes to these tables, and to their partitions, refused from the end of this transaction. Waits for writers, so that nothing is
-- written after it; the caller bounds the waits (lock_timeout).
create function public.duly_cell_fence(tables text[]) returns void language plpgsql as $function$
declare
    each record;
begin
    update public.cell_directory set state = 'fenced';
    if not found then
        raise exception using errcode = 'invalid_parameter_value', message = 'this store is no cell: it has no directory';
    end if;
    for each in
        select known.oid::regclass as name, exists (
            select from pg_trigger as there where there.tgrelid = known.oid and there.tgname = 'duly_cell_fenced'
        ) as is_fenced
        from pg_class as known
        where known.relnamespace = (select home.relnamespace from pg_class as home where home.oid = 'public.task'::regclass)
            and known.relkind in ('r', 'p')
            and (
                known.relname = any(tables)
                or known.oid in (
                    select inhrelid from pg_inherits
                    where inhparent in ('public.task'::regclass, 'public.attempt'::regclass)
                )
            )
        order by known.relname
    loop
        continue when each.is_fenced;
        execute format(
            'create trigger duly_cell_fenced before insert or update or delete or truncate on %s
                for each statement execute function public.duly_cell_refuse()',
            each.name
        );
    end loop;
end $function$;

-- Lets the store be written to again.
create function public.duly_cell_unfence() returns void language plpgsql as $function$
declare
    each record;
begin
    for each in
        select known.tgrelid::regclass as name
        from pg_trigger as known join pg_class as fenced on fenced.oid = known.tgrelid
        where known.tgname = 'duly_cell_fenced'
            and fenced.relnamespace = (select home.relnamespace from pg_class as home where home.oid = 'public.task'::regclass)
        order by fenced.relname
    loop
        execute format('drop trigger duly_cell_fenced on %s', each.name);
    end loop;
    update public.cell_directory set state = 'active';
end $function$;

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

-- Tasks: entity, attempts, dead letters, assoc and idempotency keys.

create type task_status as enum (
    'new', 'waiting', 'enqueued', 'claimed', 'processing', 'retriable_failure',
    'success', 'fatal_failure', 'cancelled', 'dropped'
);

create type attempt_outcome as enum (
    'retriable_failure', 'fatal_failure', 'crashed', 'silent', 'snoozed', 'released', 'cancelled', 'handed_over', 'waited'
);

-- The entity: wide and cold. Written when the task is scheduled and when it ends (and when an attempt fails).
-- Partitioned by the time in the task's id: finished rows leave with their partition. Ends are written by "insert ... on
-- conflict do update", because that finds its partition without planning for all of them (decision 0017). The defaults are
-- for what that proposes beside the end, and are never stored: the entity is there.
create table task (
    task_id uuid primary key,
    lambda text not null default '',
    collection text not null default '',
    priority smallint not null default 3,
    payload_encoding smallint not null default 1,
    payload bytea not null default '',
    created_at timestamptz not null default 'epoch',
    scheduled_at timestamptz not null default 'epoch',
    expires_at timestamptz,
    status task_status,
    started_at timestamptz,
    finished_at timestamptz,
    fence integer,
    failures integer,
    crashes integer,
    last_token uuid,
    result_encoding smallint,
    result bytea,
    failure_kind smallint,
    failure_message text,
    failed_at timestamptz,
    -- How often the task was redriven after it had ended as fatal_failure.
    redrives integer not null default 0,
    -- The session that the task belongs to: its tasks run one at a time, in order (decision 0029). The namespace of the
    -- lambda, a slash and the key: sessions end at their namespace (decision 0061). Code points order them for everybody.
    session text collate "C",
    -- 1: in the order in which they were scheduled; 2: by the time at which they are due.
    session_order smallint,
    -- What a fatal_failure of this task does to its session: 1 the next task runs; 2 the session is blocked; 3 the tasks
    -- that wait fail, too.
    session_policy smallint,
    -- Of which resources it takes how many units while it runs: [{"name", "key", "weight"}], by name and key (decision
    -- 0031). Null: of none.
    resources jsonb,
    -- The graph that the task is a node of (decision 0030).
    graph uuid,
    -- How long an attempt may run; null: as long as its lambda says.
    max_runtime interval,
    -- The principal that scheduled it, or the task whose callback did; null: nobody was asked who they are (decision 0038).
    scheduled_by text,
    -- Whose work it is, as the caller says.
    fair_key text check (octet_length(fair_key) between 1 and 128),
    -- What it was scheduled with of attachments, as claims tell it: [{"hash" (hex), "size_bytes", "name", "media_type"}]. What
    -- keeps these are the rows of attachment_use. Null: nothing.
    attachments jsonb,
    -- What it was scheduled with; who has the key now says unique_key.
    unique_key text,
    -- Of the caller's own, to find it by: texts, integers and flags by name. Null: none.
    attributes jsonb,
    -- Whose tick a task is; null: a client's own. Then scheduled_at is the tick.
    time_table text,
    -- How often the task was changed before it ran; the assoc counts with the entity. A claim whose snapshot has another
    -- count than the row that it locked reads the entity again.
    edits integer not null default 0,
    -- With the edits of the entity this makes the edits of the assoc.
    checkpoint_count integer not null default 0,
    -- Of a task whose payload or priority was changed: a digest of those that it was scheduled with, for repeats of the
    -- Schedule.
    scheduled_as bytea,
    -- What a callback kept for its next attempt, as JSON.
    checkpoint bytea,
    events jsonb,
    -- Of the run that succeeded; those of the others are in `attempt`.
    enqueued_at timestamptz,
    claimed_at timestamptz,
    -- Null if it was the first run.
    holder text,
    -- The events that its callback waited for and received, in their order: [{"wait", "key", "seq", "encoding", "value" (base64), "sent_by",
    -- "sent_at", "until"}], and {"wait", "timed_out"} of a wait whose time was over (decision 0091). One that its callback refused has the
    -- wait '' and no value: it tells which events of its key were received. Null: none.
    received jsonb,
    -- The entity's own status is final or absent: while the task lives its status is the assoc's. Its counts are settled then.
    constraint task_is_settled check (
        (status >= 'success') is not false and num_nonnulls(status, finished_at, fence, failures, crashes) in (0, 5)
    )
) partition by range (task_id);
create index task_by_lambda on task (lambda, task_id);

-- Lists of a collection's tasks. A task without a collection is not in it, and costs nothing more.
create index task_by_collection on task (collection, task_id) where collection <> '';

-- One row for each attempt that ended otherwise than in success; written by the statement that ends it.
create table attempt (
    task_id uuid not null,
    fence integer not null check (fence >= 1),
    attempt integer not null check (attempt >= 1),
    outcome attempt_outcome not null,
    holder text not null,
    started_at timestamptz,
    ended_at timestamptz not null,
    failure_kind smallint,
    failure_message text check (octet_length(failure_message) <= 4096),
    traceback text check (octet_length(traceback) <= 8192),
    enqueued_at timestamptz,
    claimed_at timestamptz,
    -- When the task was to be looked at next; null: it ended.
    next_trigger_at timestamptz,
    primary key (task_id, fence),
    -- What is charged to the task has a reason; what is not charged is no failure.
    constraint attempt_failure_has_a_reason check (
        (outcome in ('snoozed', 'released', 'cancelled', 'handed_over', 'waited')) = (failure_kind is null)
    )
) partition by range (task_id);

-- The first partition takes the ids of two days; Store Consumers make the others. The rest is where every other id is at
-- home: of times for which no partition was made, and of those whose partition is gone.
-- Half of each page is left to what the tasks on it end with: an end then changes no index. Without it a page is full
-- when its tasks end, and the new versions fill as many pages again (measured: decision 0017).
do $$ declare
    bound uuid := duly_first_id(date_trunc('day', now(), 'UTC') + interval '2 days');
    storage text := 'fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0';
begin
    execute format(
        'create table task_first partition of task for values from (minvalue) to (%L) with (%s)', bound, storage
    );
    execute format('create table attempt_first partition of attempt for values from (minvalue) to (%L)', bound);
    execute format('create table task_rest partition of task default with (%s)', storage);
end $$;

create table attempt_rest partition of attempt default;

-- Which tasks are fatal_failure, and since when. A table, and no index on task: an index that knows the status makes
-- each end of each task write into all indexes of task (measured: 58 % of those updates are heap-only without it, none with it).
create table dead_letter (
    task_id uuid primary key,
    lambda text not null,
    finished_at timestamptz not null
);
create index dead_letter_by_lambda on dead_letter (lambda, finished_at, task_id);
create index dead_letter_by_end on dead_letter (finished_at, task_id);

-- The assoc: narrow and hot. One row per live task; deleted in the statement that ends the task.
create table task_assoc (
    task_id uuid primary key,
    lambda text not null,
    collection text not null,
    priority smallint not null,
    status task_status not null,
    next_trigger_at timestamptz not null,
    due_at timestamptz not null,
    expires_at timestamptz,
    fence integer not null default 0,
    failures integer not null default 0,
    crashes integer not null default 0,
    -- Of these, how often its whole worker or its machine died: then nothing that ran there is more suspect than the rest.
    worker_crashes integer not null default 0,
    token uuid,
    last_token uuid,
    holder text,
    cancel_requested boolean not null default false,
    -- With cancel_requested: its callback is to be ended whatever it does.
    kill_requested boolean not null default false,
    -- Since when its callback is to end and does not, as its holder said, and how many callbacks beside it have time to end first.
    overdue_since_at timestamptz,
    overdue_neighbours integer,
    progress real,
    progress_note text,
    -- When the crashes within the window happened, oldest first; null is none, and costs a task that never crashes nothing.
    crashed_at timestamptz[],
    -- Since when it is held, if it is; for people to see.
    claimed_at timestamptz,
    -- As in task; tasks of a session run by rank, then by seq.
    session text collate "C",
    session_rank timestamptz,
    session_seq bigint,
    session_policy smallint,
    -- The graph that the task is a node of. While it waits: how many of its edges were not decided yet, and whether one
    -- that fires is enough.
    graph uuid,
    open_edges integer,
    any_of boolean,
    -- An attempt that runs longer than its max_runtime is the last; null: it is retried, as of all but some nodes.
    timeout_is_final boolean,
    -- Why a task that waits is to end without a run: a failure kind. The Store Consumer ends it (end_waiting).
    doom smallint,
    -- As in task.
    resources jsonb,
    -- What it took of them when it was picked, as `resources` is written; null: nothing. The sums are `used` of resource_use.
    taken jsonb,
    -- The resource, and its key, of which a parked task waits for units; or 'gate:' and the name of the gate that holds it, and its id;
    -- or 'completion:', and the SHA-256, in hex digits, of the token by which somebody completes it; or 'event:', and the keys of the
    -- events that its callback waits for; or 'session:', of a node of a graph that may run, until it is in its session, of which the key is
    -- the name. The node has that key from the start.
    parked_on text,
    parked_key text,
    -- When it may start by the rates of its resources: it was put off to this moment, and is not put off again if it is
    -- picked within a second of it.
    start_at timestamptz,
    edits integer not null default 0,
    -- The gates that let the task pass: those that delayed it, and the breaker whose probe it is.
    passed_gates bigint[],
    -- The rare moves of a task, oldest first (decision 0043): [{"kind", "at", "next", "about", "by"}], instants in microseconds
    -- since 1970. Each is added by the statement that moves the task. Null: none, as of most tasks. Those of a live task are in
    -- its assoc; its end adds them to those of the entity.
    events jsonb,
    -- When its reference was last sent to a queue (SQS).
    enqueued_at timestamptz,
    -- As in task: tasks of one lambda take turns by it. Empty: it has none, in a lambda some of whose tasks have (give_turns).
    fair_key text collate "C",
    -- The assoc row of a task that ended is gone. Every live task is looked at again: no status is without a deadline, but
    -- that of a task that waits for another one and does not expire. The end of the other one releases it.
    constraint assoc_is_live check (status < 'success' and (next_trigger_at < 'infinity' or status = 'waiting')),
    constraint assoc_waits_for_something check (
        status <> 'waiting' or session is not null or graph is not null or parked_on is not null
    ),
    -- What is picked takes units; whoever takes it back frees them.
    constraint assoc_took_when_picked check (taken is null or status in ('enqueued', 'claimed', 'processing')),
    -- Exactly a held task has a token.
    constraint assoc_token_means_held check ((status in ('claimed', 'processing')) = (token is not null))
) with (
    fillfactor = 70,
    -- every task writes its row about four times: dead rows are cleared as they come, not by the fifth of the table
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- What waits for its time, by queue: a lambda that is paused or full never stands before another's rows.
create index task_assoc_ready on task_assoc (lambda, priority, next_trigger_at)
    where status in ('new', 'retriable_failure');

-- The same of tasks that take turns, by key. Tasks without a key are not in it, and cost nothing more.
create index task_assoc_fair on task_assoc (lambda, priority, fair_key, next_trigger_at)
    where status in ('new', 'retriable_failure') and fair_key is not null;

-- What is on its way or running, by the time at which its silence becomes suspicious.
create index task_assoc_watched on task_assoc (next_trigger_at)
    where status in ('enqueued', 'claimed', 'processing');

-- What ends by itself if it does not start in time, by that time; tasks without one are not in it.
create index task_assoc_expiring on task_assoc (expires_at)
    where status in ('new', 'retriable_failure', 'enqueued') and expires_at is not null;

-- What waits for its turn, by session.
create index task_assoc_in_session on task_assoc (session, session_rank, session_seq)
    where status = 'waiting' and doom is null;

-- What waits and is to end without a run, by the time at which it is.
create index task_assoc_waiting_until on task_assoc (next_trigger_at)
    where status = 'waiting' and next_trigger_at < 'infinity';

-- What waits for units of a resource: by lambda and priority, those first that were due first.
create index task_assoc_parked on task_assoc (parked_on, parked_key, lambda, priority, due_at)
    where status = 'waiting' and parked_on is not null;

-- Keys of the callers' own choice; apart from task, which is partitioned. Removed with their tasks, and found by them.
create table idempotency_key (
    lambda text not null,
    key text not null check (octet_length(key) between 1 and 255),
    task_id uuid not null,
    created_at timestamptz not null,
    primary key (lambda, key)
);
create index idempotency_key_by_task on idempotency_key (task_id);

-- Which task has a unique key (decision 0094). A row stays when its task ends: whether the key is taken is judged when the next
-- task of it is scheduled. Rows whose tasks are gone leave with upkeep.
create table unique_key (
    lambda text not null,
    key text not null check (octet_length(key) between 1 and 255),
    task_id uuid not null,
    -- When the task was scheduled, or redriven.
    taken_at timestamptz not null,
    primary key (lambda, key)
);
create index unique_key_by_task on unique_key (task_id);

-- By which attributes tasks are found (decision 0105): a row for each attribute, of tasks that have some only. Apart from task, which
-- is partitioned, so a search has one index. Rows whose tasks are gone leave with upkeep.
create table task_attribute (
    name text collate "C" not null check (octet_length(name) between 1 and 64),
    value text collate "C" not null check (octet_length(value) between 1 and 256),
    task_id uuid not null,
    primary key (name, value, task_id)
);
create index task_attribute_by_task on task_attribute (task_id);

-- Tasks that were not written because another task got their payload: a repeated request finds itself here. Kept for an hour.
create table merged_task (
    task_id uuid primary key,
    holder uuid not null
);

-- Functions and triggers of tasks.

-- Full jitter: a random part of min(longest, initial * factor^failures_before).
create function duly_backoff(initial interval, factor double precision, longest interval, before integer)
    returns interval language sql volatile parallel safe
    as 'select least(extract(epoch from longest)::double precision,
                     extract(epoch from initial)::double precision * power(factor, least(before, 60)))
               * random() * interval ''1 second''';

-- The instants after `since`: what is left of a list of crashes once the older ones are forgotten.
create function duly_recent(instants timestamptz[], since timestamptz) returns timestamptz[]
    language sql immutable parallel safe
    as 'select coalesce(array_agg(instant order by instant), ''{}'') from unnest(instants) as instant where instant > since';

-- At most 200 events: the first 50, the newest ones, and between them one that counts those that were left out.
-- In plpgsql, for mostly there is nothing to do: to start a function in SQL costs ten times as much as this comparison.
create function duly_bound_events(events jsonb) returns jsonb language plpgsql immutable parallel safe as $$
begin
    if jsonb_array_length(events) <= 200 then
        return events;
    end if;
    return (
        select jsonb_agg(
            case
                when place = 50 + 1 then jsonb_build_object('kind', 'left_out', 'at', event -> 'at', 'about', (
                    select sum(case when gone.event ->> 'kind' = 'left_out' then (gone.event ->> 'about')::int8 else 1 end)
                    from jsonb_array_elements(events) with ordinality as gone (event, place)
                    where gone.place between 50 + 1 and jsonb_array_length(events) - (200 - 50 - 1)
                )::text)
                else event
            end order by place
        )
        from jsonb_array_elements(events) with ordinality as kept (event, place)
        where place <= 50 + 1 or place > jsonb_array_length(events) - (200 - 50 - 1)
    );
end $$;

-- Adds an event. `about` is what it has to do with: a resource, a task, what was changed. `by` is the principal that asked.
create function duly_note(
    events jsonb, kind text, at timestamptz, next_at timestamptz default null, about text default null, by text default null
) returns jsonb language sql stable parallel safe as $$
    select duly_bound_events(coalesce(events, '[]') || jsonb_strip_nulls(jsonb_build_object(
        'kind', kind, 'at', (extract(epoch from at) * 1000000)::int8,
        'next', case when isfinite(next_at) then (extract(epoch from next_at) * 1000000)::int8 end,
        'about', left(about, 400), 'by', by
    )))
$$;

-- Tells those who look for work that tasks of these lambdas are due (notifications.py).
create function duly_tell(lambdas text[]) returns void language sql strict as $$
    select pg_notify(duly_channel('duly_due'), '0' || case when cardinality(lambdas) <= 25 then ' ' || array_to_string(lambdas, ',') else '' end)
$$;

-- What the ends of these tasks do to what waits for them; the arrays have an element for each. Statements that end tasks
-- call it if one of these has a session, a graph or resources (fragment end_task). The status of a timeout that is final is
-- 'timed_out' here. Sessions are locked before graphs, and these
-- before resources.
create function duly_release(
    sessions text[], policies int2[], graphs uuid[], task_ids uuid[], statuses text[], dooms int2[], resources jsonb[],
    taken jsonb[]
) returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
begin
    if array_remove(sessions, null) <> '{}' then
        return query
        select released.lambda, released.due_in
        from (
            select array_agg(session) as keys, array_agg(task_id) as ids, array_agg(doom) as reasons,
                array_agg(case when status in ('fatal_failure', 'timed_out') then policy end) as failures
            from unnest(sessions, policies, task_ids, statuses, dooms) as ended (session, policy, task_id, status, doom)
            where session is not null
        ) as linked cross join lateral duly_advance_sessions(linked.keys, linked.ids, linked.failures, linked.reasons) as released;
    end if;
    if array_remove(graphs, null) <> '{}' then
        return query
        select released.lambda, released.due_in
        from (
            select array_agg(graph) as ids_of_graphs, array_agg(task_id) as ids, array_agg(status) as ends, array_agg(doom) as reasons
            from unnest(graphs, task_ids, statuses, dooms) as ended (graph, task_id, status, doom)
            where graph is not null
        ) as linked cross join lateral duly_advance_graphs(linked.ids_of_graphs, linked.ids, linked.ends, linked.reasons)
            as released;
    end if;
    if array_remove(resources, null) <> '{}' then
        return query
        select released.lambda, released.due_in
        from (
            select array_agg(needs) as needs, array_agg(held) as held
            from unnest(resources, taken) as stopped (needs, held)
            where needs is not null
        ) as linked cross join lateral duly_free(linked.needs, linked.held) as released;
    end if;
end $$;

-- An end that found no entity is not to become one. (Nobody but an operator's own hand removes a live task's entity.)
create function duly_drop_stray() returns trigger language plpgsql as '
begin
    delete from task where task_id = new.task_id;
    delete from dead_letter where task_id = new.task_id;
    return null;
end';

create trigger task_is_no_stray after insert on task
    for each row when (new.lambda = '') execute function duly_drop_stray();

-- At most 100 rows a task: those that were charged and those that were not are bounded apart, so that a task that
-- snoozes for ever keeps its failures. Looked after at each tenth claim of a task.
create function duly_bound_attempts() returns trigger language plpgsql as '
begin
    delete from attempt
    using (
        select fence, failure_kind is null as free,
            row_number() over (partition by failure_kind is null order by fence desc) as place
        from attempt
        where task_id = new.task_id
    ) as ranked
    where attempt.task_id = new.task_id and attempt.fence = ranked.fence
        and ranked.place > case when ranked.free then 30 else 60 end;
    return null;
end';

create trigger attempt_is_bounded after insert on attempt
    for each row when (new.fence % 10 = 0 and new.fence > 30) execute function duly_bound_attempts();

-- A redrive deletes the row itself.
create function duly_keep_dead_letter() returns trigger language plpgsql as '
begin
    insert into dead_letter (task_id, lambda, finished_at) values (new.task_id, new.lambda, new.finished_at)
    on conflict (task_id) do update set finished_at = excluded.finished_at;
    return null;
end';

create trigger task_is_a_dead_letter after insert or update of status on task
    for each row when (new.status = 'fatal_failure') execute function duly_keep_dead_letter();

-- Events that callers send, and the tasks that wait for them (decision 0091).

-- The keys of which events are kept, or for which a task waits: the namespace, a slash and the caller's key, as sessions have it.
-- A sender to a key locks its row, and so does a task that is about to wait: no event comes between the look and the wait.
create table event_key (
    key text collate "C" primary key,
    -- How many of its events are kept.
    events integer not null default 0,
    -- An event of it was not given to all tasks that wait yet: only to those up to this one. Null: all have it.
    given_to uuid
);
create index event_key_unfinished on event_key (key) where given_to is not null;

-- What was sent. The numbers of the events of one key grow in the order in which they were committed.
create table event (
    key text collate "C" not null,
    seq bigint generated always as identity,
    -- Of the sender's own choice: a repeated send is one event.
    event_id text collate "C" not null check (octet_length(event_id) between 1 and 255),
    encoding smallint not null,
    value bytea not null check (octet_length(value) <= 65536),
    -- The principal that sent it; null: nobody was asked who they are.
    sent_by text,
    sent_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (key, seq),
    unique (key, event_id)
);
create index event_by_expiry on event (expires_at);

-- Who waits: a row for each key of a task that waits for events. What else ends the wait may leave the row: its fence is then not
-- that of the task, or the task waits no more.
create table event_wait (
    key text collate "C" not null,
    task_id uuid not null,
    -- Of the run that began the wait.
    fence integer not null,
    -- What the callback calls this wait: see `received` of `task`.
    wait text not null,
    -- The wait ends with the last of its keys; otherwise with the first.
    needs_all boolean not null,
    primary key (key, task_id)
);
create index event_wait_by_task on event_wait (task_id);

-- Turns by fair key.

-- The queues some of whose tasks have, or had, a fair key: tasks of these take turns. The Store Consumer finds them (note_fair_lambdas).
create table fair_lambda (
    name text primary key,
    since_at timestamptz not null
);

-- How many tasks of a key start in its turn, if not one. Operators and owners decide it. The lambda is that without version,
-- domain or labels; the empty key is that of tasks without one.
create table fair_weight (
    lambda text not null check (octet_length(lambda) <= 2048),
    fair_key text collate "C" not null check (octet_length(fair_key) <= 128),
    weight integer not null check (weight between 1 and 1000),
    changed_at timestamptz not null,
    primary key (lambda, fair_key)
);

-- Addresses by which somebody without a login sends one event, once (decision 0100).

-- Of the token only its SHA-256 is kept.
create table event_address (
    token_hash bytea primary key check (octet_length(token_hash) = 32),
    -- The key of the event, as event_key has it.
    key text collate "C" not null,
    -- What is asked, for people.
    title text not null check (octet_length(title) <= 2048),
    -- The principal that made it; null: nobody was asked who they are.
    created_by text,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    used_at timestamptz,
    -- The task whose callback made it; null: a client did. Of its addresses for one key one is used.
    task_id uuid
);
create index event_address_by_key on event_address (key, expires_at);
create index event_address_by_expiry on event_address (expires_at);

-- The output of tasks: what callbacks and commands print and log while they run (decision 0079).

-- What a run wrote in a short time. Rows of a run are only added, in order, and the first ones are removed when there are too many. No
-- transaction of the task path writes here. Rows outlive their task for some minutes: a sweep removes them.
create table task_output (
    task_id uuid not null,
    fence integer not null check (fence >= 1),
    -- From 1; grows within a run.
    number integer not null check (number >= 1),
    -- How many bytes the run had written before these. More than the row before says: bytes were left out.
    position bigint not null check (position >= 0),
    size_bytes integer not null check (size_bytes >= 0),
    is_encrypted boolean not null,
    -- A serialized OutputPieces.
    content bytea not null check (octet_length(content) <= 65536),
    written_at timestamptz not null,
    primary key (task_id, fence, number)
);

-- Watches: who is told what happens to tasks, and what there is to tell (decision 0092).

-- A watch is there from its first call until nobody has called for `keep_for`. While there is one, the statements that end tasks and runs
-- write what any of them is to be told; without one they write nothing.
create table watch (
    watch_id uuid primary key,
    -- Empty where nobody is asked who they are.
    principal text not null,
    -- What it is of, in words that its next calls must repeat.
    filter text not null check (octet_length(filter) <= 65536),
    -- Which Postgres it began in: the numbers of transactions mean nothing in another.
    source text not null,
    -- Where it begins: what came before has no number above, or no transaction from here on.
    began_xid xid8 not null,
    began_seq bigint not null,
    began_at timestamptz not null,
    keep_for interval not null check (keep_for > interval '0'),
    until_at timestamptz not null
);

-- What is written for a watch, at least: '*', 'lambda:NAME', 'prefix:START', 'graphs', 'graph:ID' or 'session:NAME'.
create table watch_key (
    key text collate "C" not null,
    watch_id uuid not null references watch on delete cascade,
    primary key (key, watch_id)
);
create index watch_key_by_watch on watch_key (watch_id);

-- What happened, as far as somebody watched. Readers go by the transaction, and read only what is below all that are under way: then no
-- row can come before one that they have read. Removed by age.
create table task_event (
    xid xid8 not null default pg_current_xact_id(),
    seq bigint generated always as identity,
    -- 0: a watch began; 1: a run ended, and its task goes on; 2: a task ended; 3: a graph finished.
    kind smallint not null,
    at timestamptz not null,
    lambda text,
    task_id uuid,
    graph uuid,
    session text collate "C",
    -- Of a run an attempt_outcome, of a task a task_status, of a graph how it ended.
    status text,
    run integer,
    failure_kind smallint,
    next_at timestamptz,
    -- Of what one transaction did, runs come before tasks, and these before their graphs.
    primary key (xid, kind, seq)
);

-- The last event that was removed: what is read on from before it would have a gap.
create table task_event_sweep (
    is_only boolean primary key default true check (is_only),
    xid xid8 not null,
    kind smallint not null,
    seq bigint not null
);
insert into task_event_sweep (xid, kind, seq) values ('0', 0, 0);

-- What the statements that end tasks and runs write while somebody watches. They call these only if there is a watch.

-- Which Postgres this is: its cluster, and the timeline. A restart changes neither; a restored backup or a promoted standby is another one.
create function duly_event_source() returns text language plpgsql as $$
declare
    cluster text := '-';
begin
    begin
        cluster := (select system_identifier::text from pg_control_system());
    exception when undefined_function or insufficient_privilege or feature_not_supported then null;
    end;
    return cluster || '/' || split_part(duly_server(), '/', 1);
end $$;

-- Whether a watch is to be told of a task of this lambda, graph and session.
create function duly_is_watched(lambda text, graph uuid, session text) returns boolean language sql stable as $$
    select exists (
        select from watch_key
        where key = any (array['*', 'lambda:' || lambda, 'lambda:' || split_part(lambda, '@', 1), 'graph:' || graph, 'session:' || session])
    ) or exists (
        select from watch_key
        where starts_with(key, 'prefix:') and starts_with(lambda, substr(key, 8))
            and strpos(substr(lambda, length(key) - 6), '/') = 0
    )
$$;

-- A task ended. Returns true: it stands in a condition that holds.
create function duly_note_end(
    task_id uuid, lambda text, graph uuid, session text, status text, run integer, failure_kind int2, at timestamptz
) returns boolean language plpgsql as $$
begin
    if duly_is_watched(lambda, graph, session) then
        insert into task_event (kind, at, lambda, task_id, graph, session, status, run, failure_kind)
        values (2, at, lambda, task_id, graph, session, status, run, failure_kind);
    end if;
    return true;
end $$;

-- A run ended. If its task ended with it the end says all: the assoc is gone already.
create function duly_note_run(
    of_task uuid, outcome text, run integer, failure_kind int2, at timestamptz, next_at timestamptz
) returns boolean language plpgsql as $$
begin
    insert into task_event (kind, at, lambda, task_id, graph, session, status, run, failure_kind, next_at)
    select 1, at, assoc.lambda, assoc.task_id, assoc.graph, assoc.session, outcome, run, failure_kind, next_at
    from task_assoc as assoc
    where assoc.task_id = any (array[of_task]) and duly_is_watched(assoc.lambda, assoc.graph, assoc.session);
    return true;
end $$;

-- A graph finished. It is told after its nodes: the number of this transaction may be lower than that of another one, which ended a node, and for whose
-- commit this one waited. So the row gets the highest number that may be of such a one. While this transaction is under way nobody reads up to there.
create function duly_note_graph(graph_id uuid, status text, at timestamptz) returns boolean language plpgsql as $$
begin
    if exists (select from watch_key where key = any (array['*', 'graphs', 'graph:' || graph_id])) then
        insert into task_event (xid, kind, at, graph, status)
        select greatest(pg_current_xact_id(), (pg_snapshot_xmax(pg_current_snapshot())::text::int8 - 1)::text::xid8),
            3, at, graph_id, status;
    end if;
    return true;
end $$;

-- Sessions.

-- One row for each session that has live tasks or is blocked. Whoever changes a task that waits locks the row of its
-- session first, in the order of the keys.
create table session (
    -- As in task: NAMESPACE/KEY, without a namespace /KEY.
    key text collate "C" primary key check (
        key ~ '^([a-z0-9][a-z0-9_.-]*)?/' and octet_length(substr(key, strpos(key, '/') + 1)) between 1 and 255
    ),
    -- The one task that may run; null while a failed task blocks the session.
    head uuid,
    -- Live tasks, the head among them.
    length integer not null check (length >= 0),
    -- Of the length: those that wait and are to end without a run.
    doomed integer not null default 0 check (doomed >= 0 and doomed <= length),
    last_seq bigint not null,
    -- The task whose failure stopped the session, and when it did.
    blocked_by uuid,
    blocked_at timestamptz,
    -- While tasks fail with that one: those up to this seq do; they are marked some at a time.
    fails_until bigint,
    constraint session_block_is_whole check ((blocked_by is null) = (blocked_at is null)),
    constraint session_runs_or_is_blocked check ((head is null) = (blocked_by is not null))
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
create index session_blocked on session (key) where blocked_at is not null;

-- Tasks that transactions of clients put into sessions (duly_schedule). A row is there only until its transaction commits, which
-- removes it (duly_enter_sessions): nobody ever sees those of others.
create table session_entry (
    xact xid8 not null default pg_current_xact_id(),
    number bigint generated always as identity,
    task_id uuid not null,
    primary key (xact, number)
);

-- How sessions move on.

-- Sessions move on in these functions, and not in the statements that call them: a statement sees the rows as they were
-- before it waited for a lock, each statement of a function sees them as they are after. (transitions.sql has the moves.)

-- What the ends of these tasks do to their sessions; `failures` has the session_policy of those that ended as
-- fatal_failure, `dooms` why one that waited had to end. A session whose head ended has a new head, is blocked, or is gone.
-- move: waiting -> new
-- Returns the lambdas of new heads, and how far ahead these are due.
create function duly_advance_sessions(keys text[], task_ids uuid[], failures int2[], dooms int2[])
    returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
begin
    perform from session where key = any (keys) order by key for update;
    return query
    with line as (
        select session.key, session.head, session.length - count(*)::int4 as length,
            session.doomed - count(*) filter (where ended.doom = 11)::int4 as doomed, session.blocked_by, session.last_seq, session.fails_until,
            coalesce(bool_or(ended.task_id = session.head), false) as headless,
            max(ended.failure) filter (where ended.task_id = session.head) as failure,
            -- the tasks that were to fail with it are gone, and perhaps some that their graphs let not run
            session.fails_until is not null and session.doomed = count(*) filter (where ended.doom = 11) as failed
        from unnest(keys, task_ids, failures, dooms) as ended (key, task_id, failure, doom)
        join session on session.key = any (array[ended.key])
        group by session.key
    ), condemned as (
        -- its order keeps it from being joined the other way round: a plan made while nothing waited would look at all
        -- that waits, for ever
        select line.key, waiting.task_id, coalesce(line.blocked_by, line.head) as failed_task
        from line cross join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.session = line.key and assoc.status = 'waiting' and assoc.doom is null
                and assoc.session_seq <= case when line.headless then line.last_seq else line.fails_until end
            order by assoc.session, assoc.session_rank, assoc.session_seq
            -- an end must not outlast statement_timeout: when these are gone, the next are marked
            limit 1000
        ) as waiting
        where line.headless and line.failure = 3 or line.failed and line.head is null
    ), doomed as (
        update task_assoc as assoc
        set doom = 11, next_trigger_at = (select duly_now()),
            events = duly_note(assoc.events, 'session_failed', (select duly_now()), null, condemned.failed_task::text)
        from condemned
        where assoc.task_id = any (array[condemned.task_id]) and assoc.status::text = 'waiting'
        returning condemned.key
    ), moved as (
        select line.*, next.task_id as next_head,
            (select count(*)::int4 from doomed where doomed.key = line.key) as more_doomed
        from line left join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.session = line.key and assoc.status = 'waiting' and assoc.doom is null
                and line.length > 0
                and (
                    line.headless and coalesce(line.failure, 1) = 1
                    or line.failed and line.head is null and not exists (select from doomed where doomed.key = line.key)
                )
            order by assoc.session, assoc.session_rank, assoc.session_seq
            limit 1
        ) as next on true
    ), drained as (
        delete from session using moved
        where session.key = any (array[moved.key]) and moved.length = 0
            and (moved.headless and coalesce(moved.failure, 1) <> 2 or moved.failed and moved.head is null)
    ), updated as (
        update session
        set length = moved.length, doomed = moved.doomed + moved.more_doomed,
            head = coalesce(moved.next_head, case when not moved.headless then moved.head end),
            fails_until = case
                when moved.headless and moved.more_doomed > 0 then moved.last_seq
                -- all that is left are nodes whose graphs failed fast: the session goes on when they are gone
                when moved.headless and moved.next_head is null and coalesce(moved.failure, 1) <> 2 then 0
                when not moved.headless and moved.next_head is null then moved.fails_until
            end,
            blocked_by = case
                when moved.next_head is not null then null
                when moved.headless then moved.head
                else session.blocked_by
            end,
            blocked_at = case
                when moved.next_head is not null then null
                when moved.headless then (select duly_now())
                else session.blocked_at
            end
        from moved
        where session.key = any (array[moved.key]) and not (
            moved.length = 0
            and (moved.headless and coalesce(moved.failure, 1) <> 2 or moved.failed and moved.head is null)
        )
    ), promoted as (
        update task_assoc as assoc
        set status = 'new', next_trigger_at = greatest(assoc.due_at, (select duly_now())),
            due_at = greatest(assoc.due_at, (select duly_now())),
            events = duly_note(
                assoc.events, 'session_turn', (select duly_now()), greatest(assoc.due_at, (select duly_now())),
                coalesce(moved.head, moved.blocked_by)::text
            )
        from moved
        -- a graph that fails fast may doom it at this moment: then its end is the next one
        where assoc.task_id = any (array[moved.next_head]) and assoc.status::text = 'waiting' and assoc.doom is null
        returning assoc.lambda, assoc.due_at
    )
    select promoted.lambda, min(promoted.due_at) - (select duly_now()) from promoted group by promoted.lambda;
end $$;

-- Ends the block of a session: the next task runs, whatever became of the one that failed. False: it is not blocked.
-- `asked_by` is the principal that asked for it.
-- move: waiting -> new
create function duly_unblock_session(asked text, asked_by text default null) returns boolean language plpgsql as $$
declare
    line record;
    next_head uuid;
begin
    select * into line from session where key = asked and blocked_by is not null and doomed = 0 and fails_until is null for update;
    if not found then
        return false;
    end if;
    select assoc.task_id into next_head
    from task_assoc as assoc
    where assoc.session = asked and assoc.status = 'waiting' and assoc.doom is null
    order by assoc.session, assoc.session_rank, assoc.session_seq
    limit 1;
    if next_head is null then
        delete from session where key = asked;
    else
        update session set head = next_head, blocked_by = null, blocked_at = null where key = asked;
        update task_assoc as assoc
        set status = 'new', next_trigger_at = greatest(assoc.due_at, duly_now()), due_at = greatest(assoc.due_at, duly_now()),
            events = duly_note(
                assoc.events, 'session_unblocked', duly_now(), greatest(assoc.due_at, duly_now()), line.blocked_by::text, asked_by
            )
        where assoc.task_id = next_head and assoc.status::text = 'waiting';
    end if;
    return true;
end $$;

-- Where a task that waits is due before its session's head, which nobody has claimed yet, they change places. It is for
-- sessions whose rows the caller has locked; a head that somebody else works on stays.
-- move: new -> waiting
-- move: waiting -> new
create function duly_put_earlier_first(keys text[]) returns void language plpgsql strict as $$
begin
    with earlier as (
        select session.key, first.task_id, head.task_id as head
        from unnest(keys) as asked (key)
        join session on session.key = any (array[asked.key])
        cross join lateral (
            select assoc.task_id, assoc.session_rank, assoc.session_seq
            from task_assoc as assoc
            where assoc.session = asked.key and assoc.status = 'waiting' and assoc.doom is null
            order by assoc.session, assoc.session_rank, assoc.session_seq
            limit 1
        ) as first
        cross join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.task_id = session.head and assoc.status::text = 'new' and assoc.fence = 0
                -- one that is due may just have been released from a resource, whose units would be left to nobody
                and (assoc.resources is null or assoc.next_trigger_at > duly_now())
                and (assoc.session_rank, assoc.session_seq) > (first.session_rank, first.session_seq)
            for update skip locked
        ) as head
    ), demoted as (
        update task_assoc as assoc
        set status = 'waiting', next_trigger_at = coalesce(assoc.expires_at, 'infinity'),
            events = duly_note(assoc.events, 'session_overtaken', duly_now(), assoc.expires_at, earlier.task_id::text)
        from earlier
        where assoc.task_id = any (array[earlier.head])
    ), promoted as (
        update task_assoc as assoc
        set status = 'new', next_trigger_at = assoc.due_at,
            events = duly_note(assoc.events, 'session_turn', duly_now(), assoc.due_at, earlier.head::text)
        from earlier
        where assoc.task_id = any (array[earlier.task_id]) and assoc.doom is null
    )
    update session set head = earlier.task_id from earlier where session.key = any (array[earlier.key]);
end $$;

-- Puts up to `most` nodes of graphs that may run into their sessions, at the end of each, in the order in which they were released.
-- Who releases a node holds its graph, and sessions are locked before graphs: so this has a transaction of its own.
-- move: waiting -> new|waiting
-- Returns the lambdas of new heads, and how far ahead these are due.
create function duly_enter_nodes(most integer) returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
declare
    released uuid[];
    keys text[];
    by_time text[];
begin
    select array_agg(found.task_id), array_agg(distinct found.parked_key) into released, keys
    from (
        select assoc.task_id, assoc.parked_key
        from task_assoc as assoc
        where assoc.parked_on = 'session:' and assoc.status = 'waiting'
        limit most
    ) as found;
    if released is null then
        return;
    end if;
    -- A session that is not there is made, without a task: two transactions could wait for each other's new rows as well. From here on
    -- nobody else puts these nodes into their sessions.
    insert into session (key, head, length, last_seq)
    select asked.key, released[1], 0, 0 from unnest(keys) as asked (key) order by asked.key collate "C"
    on conflict (key) do update set length = session.length;
    with entering as materialized (
        select assoc.task_id, assoc.parked_key as key, assoc.due_at, assoc.next_trigger_at as released_at,
            case when assoc.session_rank = 'infinity' then assoc.due_at else '-infinity' end as rank
        from unnest(released) as asked (task_id)
        join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
        where assoc.status::text = 'waiting' and assoc.parked_on = 'session:'
        order by assoc.task_id
        for update of assoc
    ), placed as materialized (
        select *, row_number() over (partition by key order by released_at, task_id) as place from entering
    ), line as (
        update session
        set length = session.length + added.number, last_seq = session.last_seq + added.number,
            head = case when session.length = 0 and session.blocked_by is null then added.first else session.head end
        from (
            select placed.key, count(*)::int4 as number, (array_agg(placed.task_id order by placed.rank, placed.place))[1] as first
            from placed
            group by placed.key
        ) as added
        where session.key = any (array[added.key])
        returning session.key, session.head, session.last_seq - added.number as before
    ), entered as (
        update task_assoc as assoc
        set status = case when placed.task_id = line.head then 'new' else 'waiting' end::task_status,
            next_trigger_at = case when placed.task_id = line.head then placed.due_at else coalesce(assoc.expires_at, 'infinity') end,
            session = placed.key, session_rank = placed.rank, session_seq = line.before + placed.place,
            parked_on = null, parked_key = null
        from placed join line on line.key = placed.key
        where assoc.task_id = any (array[placed.task_id]) and assoc.status::text = 'waiting' and assoc.parked_on = 'session:'
        returning assoc.session, assoc.session_rank
    )
    select array_agg(distinct entered.session) filter (where entered.session_rank > '-infinity') into by_time from entered;
    perform duly_put_earlier_first(by_time);
    -- those whose nodes were cancelled meanwhile
    delete from session where session.key = any (keys) and session.length = 0 and session.blocked_by is null;
    return query
    select assoc.lambda, min(assoc.due_at) - duly_now()
    from unnest(released) as asked (task_id) join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'new'
    group by assoc.lambda;
end $$;

-- Graphs, their nodes, edges and definitions.

-- Named and versioned graphs that are run with parameters: GraphDefinition of the wire.
create table graph_definition (
    name text not null check (octet_length(name) between 1 and 255),
    version integer not null check (version >= 1),
    definition bytea not null check (octet_length(definition) <= 8388608),
    -- Of its nodes: they decide who may see it, and a list reads no definitions.
    lambdas text[] not null,
    created_at timestamptz not null,
    primary key (name, version)
);

-- One row for each graph, kept as long as a finished task. Whoever changes a task of a graph that waits locks the row
-- of the graph first, in the order of the ids, and sessions before graphs.
create table graph (
    graph_id uuid primary key,
    name text not null check (octet_length(name) between 1 and 255),
    -- Of the request that made it: a repeat must say the same.
    digest bytea not null,
    -- The definition that it was made of, if any.
    definition text,
    version integer,
    -- As in task.
    scheduled_by text,
    created_at timestamptz not null,
    finished_at timestamptz,
    cancel_requested boolean not null default false,
    -- The first failure that it does not handle ends it.
    fail_fast boolean not null default false,
    -- Nodes, and of these those that have not ended, and those that ended so.
    total integer not null check (total >= 1),
    open integer not null check (open between 0 and total),
    succeeded integer not null default 0 check (succeeded >= 0),
    failed integer not null default 0 check (failed >= 0),
    skipped integer not null default 0 check (skipped >= 0),
    cancelled integer not null default 0 check (cancelled >= 0),
    -- Of the failed ones those whose failure the graph does not handle.
    unhandled integer not null default 0 check (unhandled between 0 and failed),
    constraint graph_counts_add_up check (open + succeeded + failed + skipped + cancelled = total),
    constraint graph_is_finished check ((open = 0) = (finished_at is not null)),
    constraint graph_definition_is_whole check ((definition is null) = (version is null))
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
create index graph_by_end on graph (finished_at) where finished_at is not null;

-- A task's place in its graph.
create table graph_node (
    graph_id uuid not null,
    label text not null check (octet_length(label) between 1 and 128),
    task_id uuid not null,
    -- The task's lambda: by it and the id the task is found.
    lambda text not null,
    -- As in the request, from 0.
    place integer not null check (place >= 0),
    any_of boolean not null,
    ignore_failure boolean not null,
    timeout_is_final boolean not null default false,
    -- Which of its failures do not make the graph a failed one: they are ignored, or a node waits for them. Bits, as of `fires_on`.
    handled smallint not null check (handled in (0, 2, 8, 10)),
    -- The tasks that it waits for; and how each is to end, as it was asked for: one of the conditions of the wire, as bits, the first
    -- is 1.
    waits_for uuid[] not null,
    conditions smallint[] not null check (cardinality(conditions) = cardinality(waits_for)),
    primary key (graph_id, label)
);
create index graph_node_by_task on graph_node (task_id);

-- Which task waits for which. It fires if the first ends in one of the ways that the bits of `fires_on` name:
-- 1 success, 2 fatal_failure, 4 cancelled, 8 a timeout that is final, 16 skipped.
create table graph_edge (
    from_task uuid not null,
    to_task uuid not null,
    fires_on smallint not null check (fires_on between 1 and 31),
    primary key (from_task, to_task)
);

-- What the end of a node does to its graph.

-- What becomes of a node of which `edges` were decided just now: true if it runs, false if it never can, null if it waits.
create function duly_judge_node(
    any_of boolean, open_edges integer, edges integer, one_fired boolean, all_fired boolean
) returns boolean language sql immutable parallel safe as '
    select case
        when any_of then case when one_fired then true when open_edges = edges then false end
        when not all_fired then false
        when open_edges = edges then true
    end';

-- What the ends of these tasks do to their graphs: edges are decided, each once. A task whose edges let it run is due; one
-- that can never run is doomed, which decides its own edges at once. `dooms` says which of the ended ones were doomed
-- before: their edges are decided already, unless the doom is negative (they came last in a long row of such). What is parked
-- may run, and waits for no edge any more. A node that may run and has a session is parked: it enters the session in a transaction of
-- its own (duly_enter_nodes), for sessions are locked before graphs. Of a graph that fails fast the first failure that it does not handle dooms all that has not
-- started; what somebody takes or changes at this moment runs.
-- move: waiting|new|retriable_failure -> new|waiting
-- Returns the lambdas of tasks that became due, and how far ahead these are: a day ago, if nodes are to enter their sessions.
create function duly_advance_graphs(graphs uuid[], task_ids uuid[], statuses text[], dooms int2[])
    returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
declare
    now timestamptz := duly_now();
    sources uuid[];
    outcomes int4[];
    doomed uuid[];
    lambdas text[];
    dues timestamptz[];
    failing uuid[];
    steps integer := 0;
begin
    perform from graph where graph_id = any (graphs) order by graph_id for update;
    select array_agg(ended.task_id),
        array_agg(case ended.status when 'success' then 1 when 'fatal_failure' then 2 when 'timed_out' then 8 when 'cancelled' then 4 else 16 end)
    into sources, outcomes
    from unnest(task_ids, statuses, dooms) as ended (task_id, status, doom)
    where ended.doom is null or ended.doom < 0 or ended.doom = 11;
    while cardinality(sources) > 0 loop
        steps := steps + 1;
        with decided as (
            select edge.to_task, count(*)::int4 as edges, min(source.place) as ended, bool_or(edge.fires_on & source.outcome > 0) as one_fired,
                bool_and(edge.fires_on & source.outcome > 0) as all_fired
            from unnest(sources, outcomes) with ordinality as source (task_id, outcome, place)
            cross join lateral (
                select edge.to_task, edge.fires_on
                from graph_edge as edge
                where edge.from_task = any (array[source.task_id])
            ) as edge
            group by edge.to_task
        ), changed as (
            update task_assoc as assoc
            set open_edges = assoc.open_edges - decided.edges,
                status = case
                    when duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) and assoc.parked_key is null then 'new'
                    else 'waiting'
                end::task_status,
                parked_on = case
                    when assoc.parked_key is not null and duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then 'session:'
                end,
                -- what is left undecided here is decided when these end
                doom = case
                    when not duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then case when steps < 200 then 12 else -12 end
                end,
                due_at = case
                    when duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then greatest(assoc.due_at, now)
                    else assoc.due_at
                end,
                next_trigger_at = case duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired)
                    when true then case when assoc.parked_key is null then greatest(assoc.due_at, now) else now end
                    when false then now
                    else assoc.next_trigger_at
                end,
                events = case duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired)
                    when true then duly_note(assoc.events, 'graph_ready', now, greatest(assoc.due_at, now), sources[decided.ended]::text)
                    when false then duly_note(assoc.events, 'graph_skipped', now, now, sources[decided.ended]::text)
                    else assoc.events
                end
            from decided
            where assoc.task_id = any (array[decided.to_task]) and assoc.status::text = 'waiting' and assoc.doom is null and assoc.parked_on is null and assoc.session is null
            returning assoc.task_id, assoc.status, assoc.doom, assoc.lambda, case when assoc.parked_on is null then assoc.due_at else now - interval '1 day' end as due_at, assoc.parked_on
        )
        select array_agg(changed.task_id) filter (where changed.doom is not null),
            array_agg(changed.lambda) filter (where changed.status = 'new' or changed.parked_on is not null),
            array_agg(changed.due_at) filter (where changed.status = 'new' or changed.parked_on is not null)
        into doomed, lambdas, dues
        from changed;
        if lambdas is not null then
            return query
            select due.lambda, min(due.due_at) - now
            from unnest(lambdas, dues) as due (lambda, due_at)
            group by due.lambda;
        end if;
        exit when doomed is null or steps >= 200;
        -- where all edges are needed a skip spreads along each: in one statement, however long the way is
        with recursive skipped (task_id) as (
            select doomed.task_id from unnest(doomed) as doomed (task_id)
            union
            select assoc.task_id
            from skipped
            cross join lateral (
                select edge.to_task
                from graph_edge as edge
                where edge.from_task = any (array[skipped.task_id]) and edge.fires_on & 16 = 0
            ) as edge
            join task_assoc as assoc on assoc.task_id = any (array[edge.to_task])
            where assoc.status::text = 'waiting' and assoc.doom is null and assoc.parked_on is null and not assoc.any_of
        ), changed as (
            update task_assoc as assoc
            set doom = 12, next_trigger_at = now, events = duly_note(assoc.events, 'graph_skipped', now, now)
            from skipped
            where assoc.task_id = any (array[skipped.task_id]) and assoc.status::text = 'waiting' and assoc.doom is null and assoc.parked_on is null
        )
        select array_agg(skipped.task_id), array_agg(16) into sources, outcomes from skipped;
    end loop;
    with counted as (
        update graph
        set open = graph.open - ended.number, succeeded = graph.succeeded + ended.succeeded, failed = graph.failed + ended.failed,
            skipped = graph.skipped + ended.skipped, cancelled = graph.cancelled + ended.cancelled,
            unhandled = graph.unhandled + ended.unhandled,
            finished_at = case when graph.open = ended.number then now end
        from (
            select ended.graph_id, count(*)::int4 as number,
                count(*) filter (where ended.status = 'success')::int4 as succeeded,
                count(*) filter (where ended.status in ('fatal_failure', 'timed_out'))::int4 as failed,
                count(*) filter (where ended.status = 'dropped')::int4 as skipped,
                count(*) filter (where ended.status = 'cancelled')::int4 as cancelled,
                count(*) filter (where ended.status in ('fatal_failure', 'timed_out') and (
                    select node.handled from graph_node as node where node.task_id = any (array[ended.task_id]) limit 1
                ) & case ended.status when 'timed_out' then 8 else 2 end = 0)::int4 as unhandled
            from unnest(graphs, task_ids, statuses) as ended (graph_id, task_id, status)
            group by ended.graph_id
        ) as ended
        where graph.graph_id = any (array[ended.graph_id])
        returning graph.graph_id, graph.fail_fast and graph.unhandled > 0 and graph.open > 0 as fails_now,
            case when graph.open = 0 and exists (select from watch) then duly_note_graph(graph.graph_id, case
                when graph.cancel_requested then 'cancelled'
                when graph.unhandled > 0 then 'failed'
                when graph.cancelled > 0 then 'cancelled'
                else 'succeeded'
            end, now) end as noted
    )
    select array_agg(counted.graph_id) into failing from counted where counted.fails_now;
    if failing is null then
        return;
    end if;
    with stopped as (
        select assoc.task_id
        from graph_node as node join task_assoc as assoc on assoc.task_id = any (array[node.task_id])
        where node.graph_id = any (failing) and assoc.graph = node.graph_id
            and assoc.status::text in ('waiting', 'new', 'retriable_failure') and coalesce(assoc.doom, -1) < 0
        order by assoc.task_id
        for update of assoc skip locked
    )
    update task_assoc as assoc
    set status = 'waiting', doom = 15, parked_on = null, parked_key = null, start_at = null, next_trigger_at = now,
        events = duly_note(assoc.events, 'graph_failed', now, now)
    from stopped
    where assoc.task_id = any (array[stopped.task_id])
        and assoc.status::text in ('waiting', 'new', 'retriable_failure') and coalesce(assoc.doom, -1) < 0;
end $$;

-- Resources and what is taken of them.

-- What tasks share, and how much of it there is. Operators decide it. Applications declare what no operator decided.
create table resource (
    -- That of `lambda:NAME` is the quota of a lambda: each of its tasks takes a unit, without naming it. The rate of
    -- `schedule:NAME` bounds how many of its tasks clients schedule; Frontends count them.
    -- With `lambda:` or `schedule:` the quota of a lambda, which may have a namespace. `namespace:NAME` and
    -- `schedule-namespace:NAME` are the same for all lambdas of a namespace, `domain:NAME` is the quota of a domain. Others may have a
    -- namespace, too: then only its tasks name them.
    name text primary key check (
        name ~ '^(((lambda|schedule):)?([a-z0-9][a-z0-9_.-]*/)?|(namespace|schedule-namespace|domain):)[a-z0-9][a-z0-9_.-]*$'
        and length(name) <= 147
    ),
    capacity integer not null check (capacity between 0 and 1000000),
    -- Whether each key of the resource has units of its own.
    per_key boolean not null,
    note text not null check (octet_length(note) <= 1024),
    changed_at timestamptz not null,
    -- At most `rate` units in a `period` are started, `burst` of them at once; null: as many as there are.
    rate integer check (rate between 1 and 1000000),
    period interval check (period >= interval '1 ms' and period <= interval '1 day'),
    burst integer check (burst between 1 and 1000000),
    -- Tasks may be put off by another rate, which it had before.
    rate_is_new boolean not null default false,
    constraint resource_rate_is_whole check ((rate is null) = (period is null) and (rate is null) = (burst is null)),
    -- The owner and version of the application that declared it; null: an operator made or changed it, and no declaration changes it.
    declared_by text,
    declared_version text,
    -- The principal that set it, or whose declaration did.
    set_by text not null default ''
);
create index resource_quotas on resource (name) where name like 'lambda:%' or name like 'namespace:%' or name like 'domain:%';
create index resource_scheduling_quotas on resource (name)
    where name like 'schedule:%' or name like 'schedule-namespace:%';

-- How much of a resource is taken: one row for a resource, or for each of its keys that is in use. Whoever takes, frees,
-- parks or releases locks it first, in the order of resource and key.
create table resource_use (
    resource text not null,
    key text not null check (octet_length(key) <= 255),
    used integer not null default 0 check (used >= 0),
    -- When all units that were given a start time will have started, at the rate of the resource (GCRA's theoretical arrival
    -- time); null: none was given.
    starts_until timestamptz,
    -- The same of the units that did start, which is never later; null: none did. By it a task that missed its start time is
    -- judged.
    started_until timestamptz,
    -- Since when parked tasks may fit that were not released, because somebody else had locked them; null: there are none. The
    -- Store Consumer releases them (duly_release_skipped).
    skipped_at timestamptz,
    primary key (resource, key)
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
create index resource_use_skipped on resource_use (skipped_at) where skipped_at is not null;

-- Units and rates of resources: who gets them, who is parked, who is released.

-- As sessions do, resources move tasks in functions, for the same reason. A weight above the capacity counts as the whole
-- capacity. A resource that is not declared any more limits nothing.

-- Releases parked tasks of these use rows, which the caller has locked: of each lambda and priority the first ones that
-- fit into what is free, up to 1000. They compete at the pick, so a lambda without workers keeps nothing from the others.
-- It never waits for a parked task. A statement that looked at the task before it was parked may have locked it, and may wait
-- for these use rows. The use row of a task that was passed over keeps that.
-- move: waiting -> new
create function duly_unpark(names text[], keys text[]) returns table (lambda text, number integer) language plpgsql strict rows 10 as $$
#variable_conflict use_column
declare
    place record;
    line record;
    fitting integer;
begin
    for place in
        select use.resource, use.key, coalesce(resource.capacity, 1000000) as capacity,
            coalesce(resource.capacity, 1000000) - use.used as free
        from unnest(names, keys) as asked (name, key)
        cross join lateral (
            select * from resource_use where resource = asked.name and key = asked.key limit 1
        ) as use
        left join resource on resource.name = any (array[use.resource])
        where use.used < coalesce(resource.capacity, 1000000)
    loop
        select ''::text as lambda, 0::int2 as priority into line;
        loop
            select assoc.lambda, assoc.priority into line
            from task_assoc as assoc
            where assoc.parked_on = place.resource and assoc.parked_key = place.key and assoc.status = 'waiting'
                and (assoc.lambda, assoc.priority) > (line.lambda, line.priority)
            order by assoc.parked_on, assoc.parked_key, assoc.lambda, assoc.priority
            limit 1;
            exit when not found;
            with first as (
                select assoc.task_id, assoc.due_at, assoc.resources
                from task_assoc as assoc
                where assoc.parked_on = place.resource and assoc.parked_key = place.key and assoc.status = 'waiting'
                    and assoc.lambda = line.lambda and assoc.priority = line.priority
                order by assoc.parked_on, assoc.parked_key, assoc.lambda, assoc.priority, assoc.due_at
                limit least(place.free, 1000)
            ), counted as (
                select first.task_id,
                    sum(least(need.weight, place.capacity)) over (order by first.due_at, first.task_id) as total
                from first cross join lateral jsonb_to_recordset(first.resources) as need (name text, key text, weight int4)
                where need.name = place.resource and need.key = place.key
            ), fitting as materialized (
                select counted.task_id from counted where counted.total <= place.free
            ), locked as materialized (
                select assoc.task_id
                from fitting join task_assoc as assoc on assoc.task_id = any (array[fitting.task_id])
                where assoc.status::text = 'waiting' and assoc.parked_on is not null
                for update of assoc skip locked
            ), released as (
                update task_assoc as assoc
                set status = 'new', parked_on = null, parked_key = null,
                    next_trigger_at = greatest(assoc.due_at, (select duly_now())),
                    events = duly_note(
                        assoc.events, 'unparked', (select duly_now()), greatest(assoc.due_at, (select duly_now())),
                        concat_ws('/', assoc.parked_on, nullif(assoc.parked_key, ''))
                    )
                from locked
                where assoc.task_id = any (array[locked.task_id])
                    and assoc.status::text = 'waiting' and assoc.parked_on is not null
                returning assoc.task_id
            )
            select (select count(*) from fitting), (select count(*) from released) into fitting, number;
            if number > 0 then
                lambda := line.lambda;
                return next;
            end if;
            if number < fitting then
                update resource_use as use
                set skipped_at = duly_now()
                where use.resource = place.resource and use.key = place.key and use.skipped_at is null;
            end if;
        end loop;
    end loop;
end $$;

-- The arithmetic of rates is GCRA, the generic cell rate algorithm; limits/rates.py has the same for quotas of scheduling, and both
-- have the same cases in tests. All are seconds, counted from now: `ahead` until all start times that were given are over, `pace`
-- for each unit (null: no rate). So many units as `burst` may start at once; a heavier task counts as the burst.

-- How long until `weight` units may start; not above 0: now.
create function duly_rate_wait(ahead float8, pace float8, burst integer, weight integer) returns float8
    language sql immutable parallel safe as 'select ahead - pace * (burst - least(weight, burst))';

-- The new `ahead` once `weight` units have a start time, `start_in` from now.
create function duly_rate_ahead(ahead float8, start_in float8, pace float8, burst integer, weight integer) returns float8
    language sql immutable parallel safe as 'select greatest(ahead, start_in) + pace * least(weight, burst)';

-- Takes all units that these tasks need, whether there are so many or not: mostly there are, and each row is written once.
-- `all_fit`: there are, no rate has a say, and nobody is parked on them.
create function duly_take(needs jsonb[], out names text[], out keys text[], out all_fit boolean) language plpgsql strict as $$
declare
    used int4[];
begin
    with locked as (
        insert into resource_use as use (resource, key, used)
        select need.name, need.key, least(sum(need.weight), 1000000000)::int4
        from unnest(needs) as asked (needs)
        cross join lateral jsonb_to_recordset(asked.needs) as need (name text, key text, weight int4)
        group by need.name, need.key
        order by need.name, need.key
        on conflict (resource, key) do update set used = use.used + excluded.used
        returning use.resource, use.key, use.used
    )
    select array_agg(locked.resource), array_agg(locked.key), array_agg(locked.used) into names, keys, used from locked;

    select bool_and(
        place.used <= coalesce(resource.capacity, 1000000) and resource.rate is null and not exists (
            select from task_assoc as other
            where other.parked_on = place.name and other.parked_key = place.key and other.status = 'waiting'
        )
    ) into all_fit
    from unnest(names, keys, used) as place (name, key, used)
    left join resource on resource.name = any (array[place.name]);
end $$;

-- Puts tasks off to the start times that rates give them. `needs` has those of all `picked`.
create function duly_put_off(
    picked uuid[], needs jsonb[], late uuid[], next_at timestamptz[], start_times timestamptz[], asked_at timestamptz
) returns void language sql strict as $$
    update task_assoc as assoc
    set next_trigger_at = put_off.next_at, start_at = put_off.start_at, resources = asked.needs,
        events = duly_note(assoc.events, 'put_off', asked_at, put_off.next_at)
    from unnest(late, next_at, start_times) as put_off (task_id, next_at, start_at)
    join unnest(picked, needs) as asked (task_id, needs) on asked.task_id = put_off.task_id
    where assoc.task_id = any (array[put_off.task_id]) and assoc.status::text in ('new', 'retriable_failure')
$$;

-- Parks tasks, each on the resource and key that has too little left for it.
-- move: new|retriable_failure -> waiting
create function duly_park(
    picked uuid[], needs jsonb[], parked uuid[], names text[], keys text[], asked_at timestamptz
) returns void language sql strict as $$
    update task_assoc as assoc
    set status = 'waiting', next_trigger_at = coalesce(assoc.expires_at, 'infinity'),
        parked_on = refused.resource, parked_key = refused.key, resources = asked.needs,
        events = duly_note(
            assoc.events, 'parked', asked_at, assoc.expires_at, concat_ws('/', refused.resource, nullif(refused.key, ''))
        )
    from unnest(parked, names, keys) as refused (task_id, resource, key)
    join unnest(picked, needs) as asked (task_id, needs) on asked.task_id = refused.task_id
    where assoc.task_id = any (array[refused.task_id]) and assoc.status::text in ('new', 'retriable_failure')
$$;

-- Gives units to those of the picked tasks, all of which need resources, for which there are enough, by due time, and
-- parks the others; returns the parked ones. The caller has locked them. A task does not overtake a parked one of its
-- lambda and priority that was due before it. What would get units, and is too early by the rate of a resource, is put off
-- to its start time, and returned, too. Those that get units are not written: the caller does that. They took what they need;
-- one that takes less, for it needs more than there is in all, is returned with what it took. The parts: duly_take, the rates
-- (duly_rate_wait, duly_rate_ahead), duly_put_off and duly_park.
create function duly_admit(picked uuid[], needs jsonb[]) returns table (task_id uuid, taken jsonb)
    language plpgsql strict rows 10 as $$
#variable_conflict use_column
declare
    names text[];
    keys text[];
    capacities int4[];
    free int4[];
    all_fit boolean;
    -- by place: seconds for each unit, null without a rate; how many units at once; seconds until all start times that were given
    -- are over, and those of what did start
    paces float8[];
    bursts int4[];
    ahead float8[];
    started float8[];
    task record;
    place int4;
    parked_at int4;
    asked_at timestamptz := duly_now();
    start_in float8;
    start_from float8;
    behind text[] := '{}';
    granted uuid[] := '{}';
    parked uuid[] := '{}';
    parked_names text[] := '{}';
    parked_keys text[] := '{}';
    late uuid[] := '{}';
    late_at timestamptz[] := '{}';
    start_times timestamptz[] := '{}';
begin
    select took.names, took.keys, took.all_fit into names, keys, all_fit from duly_take(needs) as took;
    if all_fit then
        return;
    end if;

    select array_agg(named.name order by named.name, named.key), array_agg(named.key order by named.name, named.key),
        array_agg(coalesce(resource.capacity, 1000000) order by named.name, named.key),
        array_agg(coalesce(resource.capacity, 1000000) - use.used + named.weight order by named.name, named.key),
        array_agg(extract(epoch from resource.period) / resource.rate order by named.name, named.key),
        array_agg(resource.burst order by named.name, named.key),
        array_agg(extract(epoch from use.starts_until - asked_at) order by named.name, named.key),
        array_agg(extract(epoch from use.started_until - asked_at) order by named.name, named.key)
    into names, keys, capacities, free, paces, bursts, ahead, started
    from (
        select need.name, need.key, least(sum(need.weight), 1000000000)::int4 as weight
        from unnest(needs) as asked (needs)
        cross join lateral jsonb_to_recordset(asked.needs) as need (name text, key text, weight int4)
        group by need.name, need.key
    ) as named
    cross join lateral (
        select used, starts_until, started_until from resource_use where resource = named.name and key = named.key limit 1
    ) as use
    left join resource on resource.name = any (array[named.name]);

    for task in
        select need.task_id, need.lambda, need.priority, need.expires_at, need.start_at,
            array_agg(need.place order by need.place) as places,
            array_agg(need.weight order by need.place) as weights, array_agg(need.is_behind order by need.place) as is_behind
        from (
            select assoc.task_id, assoc.lambda, assoc.priority, assoc.due_at, assoc.expires_at, assoc.start_at, need.weight,
                dense_rank() over (order by need.name, need.key)::int4 as place,
                exists (
                    select from task_assoc as other
                    where other.parked_on = need.name and other.parked_key = need.key and other.status = 'waiting'
                        and other.lambda = assoc.lambda and other.priority = assoc.priority and other.due_at < assoc.due_at
                ) as is_behind
            from unnest(picked, needs) as asked (task_id, needs)
            join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
            cross join lateral jsonb_to_recordset(asked.needs) as need (name text, key text, weight int4)
        ) as need
        group by need.task_id, need.lambda, need.priority, need.due_at, need.expires_at, need.start_at
        order by need.due_at, need.task_id
    loop
        parked_at := null;
        for number in 1 .. cardinality(task.places) loop
            if task.is_behind[number]
                or least(task.weights[number], capacities[task.places[number]]) > free[task.places[number]]
                or capacities[task.places[number]] = 0
                or concat(task.places[number], '/', task.priority, '/', task.lambda) = any (behind)
            then
                parked_at := task.places[number];
                exit;
            end if;
        end loop;
        -- it starts when all its resources let it. No start time is given twice, and one that was missed is kept: the task
        -- starts unless more would start than the burst allows. A start counts from its start time, but at most a second ago:
        -- workers that come a little late lose nothing, and those that were away do not catch up
        start_in := extract(epoch from task.start_at - asked_at);
        start_from := greatest(least(start_in, 0), -1);
        if parked_at is null and start_in <= 0 then
            for number in 1 .. cardinality(task.places) loop
                -- a millisecond: the times are rounded
                place := task.places[number];
                if duly_rate_wait(started[place], paces[place], bursts[place], task.weights[number]) > 0.001 then
                    start_in := null;
                    exit;
                end if;
            end loop;
        end if;
        if parked_at is null and start_in is null then
            start_in := 0;
            start_from := 0;
            for number in 1 .. cardinality(task.places) loop
                place := task.places[number];
                start_in := greatest(
                    start_in, duly_rate_wait(ahead[place], paces[place], bursts[place], task.weights[number])
                );
            end loop;
            if start_in <= 0 or coalesce(task.expires_at > asked_at + start_in * interval '1 s', true) then
                for number in 1 .. cardinality(task.places) loop
                    place := task.places[number];
                    ahead[place] := duly_rate_ahead(ahead[place], start_in, paces[place], bursts[place], task.weights[number]);
                end loop;
            end if;
        end if;
        if parked_at is null and start_in <= 0 then
            for number in 1 .. cardinality(task.places) loop
                place := task.places[number];
                started[place] := duly_rate_ahead(started[place], start_from, paces[place], bursts[place], task.weights[number]);
                ahead[place] := greatest(ahead[place], started[place]);
            end loop;
        end if;
        if parked_at is null and start_in > 0 then
            late := late || task.task_id;
            late_at := late_at || least(task.expires_at, asked_at + start_in * interval '1 s');
            start_times := start_times || asked_at + start_in * interval '1 s';
        elsif parked_at is null then
            for number in 1 .. cardinality(task.places) loop
                free[task.places[number]] := free[task.places[number]]
                    - least(task.weights[number], capacities[task.places[number]]);
            end loop;
            granted := granted || task.task_id;
        else
            parked := parked || task.task_id;
            parked_names := parked_names || names[parked_at];
            parked_keys := parked_keys || keys[parked_at];
            behind := behind || concat(parked_at, '/', task.priority, '/', task.lambda);
        end if;
    end loop;

    update resource_use as use
    set used = place.capacity - place.free
    from unnest(names, keys, capacities, free) as place (name, key, capacity, free)
    where use.resource = any (array[place.name]) and use.key = place.key
        and use.used <> place.capacity - place.free;
    if exists (select from unnest(paces) as pace where pace is not null) then
        update resource_use as use
        set starts_until = asked_at + place.ahead * interval '1 s',
            started_until = asked_at + place.started * interval '1 s'
        from unnest(names, keys, paces, ahead, started) as place (name, key, pace, ahead, started)
        where use.resource = any (array[place.name]) and use.key = place.key and place.pace is not null
            and (use.starts_until, use.started_until) is distinct from
                (asked_at + place.ahead * interval '1 s', asked_at + place.started * interval '1 s');
    end if;
    if late <> '{}' then
        perform duly_put_off(picked, needs, late, late_at, start_times, asked_at);
        return query select put_off.task_id, null::jsonb from unnest(late) as put_off (task_id);
    end if;
    if parked <> '{}' then
        perform duly_park(picked, needs, parked, parked_names, parked_keys, asked_at);
        return query select refused.task_id, null::jsonb from unnest(parked) as refused (task_id);
    end if;
    return query
    select asked.task_id, jsonb_agg(jsonb_build_object(
        'name', need.name, 'key', need.key, 'weight', least(need.weight, coalesce(resource.capacity, 1000000))
    ))
    from unnest(picked, needs) as asked (task_id, needs)
    cross join lateral jsonb_to_recordset(asked.needs) as need (name text, key text, weight int4)
    left join resource on resource.name = any (array[need.name])
    where asked.task_id = any (granted)
    group by asked.task_id
    having bool_or(need.weight > coalesce(resource.capacity, 1000000));
    if parked <> '{}' or late <> '{}' then
        -- what they may have been released for, and leave; it may be of other lambdas than who picks looks for
        perform duly_tell(array_agg(distinct unparked.lambda)) from duly_unpark(names, keys) as unparked;
    end if;
end $$;

-- Frees what these tasks took, which stopped or will not run (null: nothing), and releases tasks that are parked on what they
-- need. Returns the lambdas of what was released. Rows of keys that nobody uses any more are left to retention.
create function duly_free(needs jsonb[], taken jsonb[]) returns table (lambda text, due_in interval)
    language plpgsql strict rows 10 as $$
#variable_conflict use_column
declare
    names text[];
    keys text[];
begin
    with freed as (
        update resource_use as use
        set used = use.used - stopped.weight
        from (
            select need.name, need.key, coalesce(sum(need.weight) filter (where stopped.taken is not null), 0)::int4 as weight
            from unnest(needs, taken) as stopped (needs, taken)
            cross join lateral jsonb_to_recordset(coalesce(stopped.taken, stopped.needs))
                as need (name text, key text, weight int4)
            group by need.name, need.key
            order by need.name, need.key
        ) as stopped
        where use.resource = any (array[stopped.name]) and use.key = stopped.key
        returning use.resource, use.key
    )
    select array_agg(freed.resource), array_agg(freed.key) into names, keys from freed;

    select array_agg(place.name), array_agg(place.key) into names, keys
    from unnest(names, keys) as place (name, key)
    where exists (
        select from task_assoc as assoc
        where assoc.parked_on = place.name and assoc.parked_key = place.key and assoc.status = 'waiting'
    );
    if names is not null then
        return query
        select unparked.lambda, interval '0' from duly_unpark(names, keys) as unparked group by unparked.lambda;
    end if;
end $$;

-- Declares a resource, or changes it: only the columns in `named`. What is not named stays, or is the default of a new resource.
-- Nobody takes or frees meanwhile: whoever parks by what it was has done so before, and the caller releases that afterwards, in
-- statements of their own (duly_release_parked). `rate_is_new`: what was put off is to be due, too (duly_forget_starts,
-- duly_end_delays). A null capacity is none: only the rate limits it.
-- is_done is false if it is in use, and cannot be given another per_key; if it is not as the caller read it (is_expected): it was
-- not changed last at `expected_at`, nor is it what is asked already; or if it would contradict itself, in the column `wrong`.
-- put_at is when it was changed last: a call that changes nothing keeps it. `changed` has the columns that this call changed.
create function duly_put_resource(
    asked text, named text[], asked_capacity int4, asked_per_key boolean, asked_note text, asked_rate int4,
    asked_period interval, asked_burst int4, expected_at timestamptz, out is_done boolean, out is_expected boolean,
    out wrong text, out put_at timestamptz, out rate_is_new boolean, out is_created boolean, out changed text[],
    out new_capacity int4, out new_per_key boolean, out new_note text, out new_rate int4, out new_period interval,
    out new_burst int4
) language plpgsql as $$
#variable_conflict use_column
declare
    kept resource;
begin
    lock table resource_use in exclusive mode;
    select * into kept from resource as declared where declared.name = asked for update;
    is_created := not found;
    put_at := kept.changed_at;
    -- that of a resource which only its rate limits is stored as the largest one
    new_capacity := case
        when 'capacity' = any (named) then asked_capacity
        when kept.rate is null or kept.capacity < 1000000 then kept.capacity
    end;
    new_per_key := case when 'per_key' = any (named) then asked_per_key else coalesce(kept.per_key, false) end;
    new_note := case when 'note' = any (named) then asked_note else coalesce(kept.note, '') end;
    new_rate := case when 'rate.units' = any (named) then asked_rate else kept.rate end;
    new_period := case when 'rate.period' = any (named) then asked_period else kept.period end;
    new_burst := case when 'rate.burst' = any (named) then asked_burst else kept.burst end;
    wrong := case
        when new_rate is null and (new_period is not null or new_burst is not null) then 'rate.units'
        when new_rate is not null and new_period is null then 'rate.period'
        when new_rate is null and new_capacity is null then 'capacity'
    end;
    new_burst := case when new_rate is not null then coalesce(new_burst, 1) end;
    new_capacity := coalesce(new_capacity, 1000000);
    changed := array_remove(array[
        case when kept.capacity is distinct from new_capacity then 'capacity' end,
        case when coalesce(kept.per_key, false) <> new_per_key then 'per_key' end,
        case when coalesce(kept.note, '') <> new_note then 'note' end,
        case when kept.rate is distinct from new_rate then 'rate.units' end,
        case when kept.period is distinct from new_period then 'rate.period' end,
        case when kept.burst is distinct from new_burst then 'rate.burst' end
    ], null);
    is_expected := expected_at is null or not is_created and (kept.changed_at = expected_at or changed = '{}');
    is_done := is_expected and wrong is null and not (
        kept.per_key is distinct from new_per_key and (
            exists (select from resource_use as use where use.resource = asked and use.used > 0)
            or exists (select from task_assoc as assoc where assoc.status = 'waiting' and assoc.parked_on = asked)
        ) and not is_created
    );
    if is_done then
        insert into resource as declared (name, capacity, per_key, note, changed_at, rate, period, burst, rate_is_new)
        values (
            asked, new_capacity, new_per_key, new_note, duly_now(), new_rate, new_period, new_burst, new_rate is not null
        )
        on conflict (name) do update
        set capacity = excluded.capacity, per_key = excluded.per_key, note = excluded.note,
            changed_at = case when changed = '{}' then declared.changed_at else excluded.changed_at end,
            rate = excluded.rate, period = excluded.period, burst = excluded.burst,
            rate_is_new = declared.rate_is_new or changed && array['rate.units', 'rate.period', 'rate.burst'],
            -- an operator's from now on; duly_set_resource says whose
            declared_by = null, declared_version = null, set_by = ''
        returning declared.changed_at, declared.rate_is_new into put_at, rate_is_new;
    end if;
end $$;

-- The same, with who does it. With an owner it is a declaration of an application: what an operator, or another owner's application
-- set stays (is_kept).
create function duly_set_resource(
    asked text, named text[], asked_capacity int4, asked_per_key boolean, asked_note text, asked_rate int4,
    asked_period interval, asked_burst int4, expected_at timestamptz, asked_by text, asked_owner text, asked_version text,
    out is_done boolean, out is_expected boolean, out wrong text, out put_at timestamptz, out rate_is_new boolean,
    out is_created boolean, out changed text[], out new_capacity int4, out new_per_key boolean, out new_note text,
    out new_rate int4, out new_period interval, out new_burst int4, out is_kept boolean
) language plpgsql as $$
#variable_conflict use_column
begin
    lock table resource_use in exclusive mode;
    is_kept := asked_owner is not null and exists (
        select from resource as known
        where known.name = asked and (known.declared_by is null or known.declared_by not in ('', asked_owner))
    );
    if is_kept then
        is_done := false;
        return;
    end if;
    select put.is_done, put.is_expected, put.wrong, put.put_at, put.rate_is_new, put.is_created, put.changed, put.new_capacity,
        put.new_per_key, put.new_note, put.new_rate, put.new_period, put.new_burst
    into is_done, is_expected, wrong, put_at, rate_is_new, is_created, changed, new_capacity, new_per_key, new_note, new_rate,
        new_period, new_burst
    from duly_put_resource(
        asked, named, asked_capacity, asked_per_key, asked_note, asked_rate, asked_period, asked_burst, expected_at
    ) as put;
    if is_done then
        update resource as known
        set declared_by = asked_owner, declared_version = asked_version, set_by = asked_by
        where known.name = asked;
    end if;
end $$;

-- Releases tasks that are parked on a resource, from a key on; its capacity may have grown. Returns their lambdas, the key to
-- go on from (null: that was all), and whether more of the same keys may be released.
create function duly_release_parked(asked text, from_key text, out lambdas text[], out next_key text, out has_more boolean)
    language plpgsql as $$
declare
    keys text[];
begin
    select array_agg(parked.key order by parked.key) into keys
    from (
        select distinct assoc.parked_key as key
        from task_assoc as assoc
        where assoc.parked_on = asked and assoc.status = 'waiting' and assoc.parked_key >= from_key
        order by assoc.parked_key
        limit 200
    ) as parked;
    keys := coalesce(keys, '{}');
    next_key := keys[200];
    insert into resource_use as use (resource, key)
    select asked, parked.key from unnest(keys) as parked (key) order by parked.key
    on conflict (resource, key) do update set used = use.used;
    select coalesce(array_agg(distinct unparked.lambda), '{}'), coalesce(bool_or(unparked.number >= 1000), false)
    into lambdas, has_more
    from duly_unpark(array_fill(asked, array[cardinality(keys)]), keys) as unparked;
end $$;

-- Releases parked tasks that were passed over while somebody else had locked them, of some use rows. A use row that somebody
-- else works on is left to the next call.
create function duly_release_skipped(most integer) returns setof text language plpgsql as $$
declare
    names text[];
    keys text[];
begin
    select array_agg(page.resource), array_agg(page.key) into names, keys
    from (
        select use.resource, use.key
        from resource_use as use
        where use.skipped_at is not null
        order by use.skipped_at
        limit most
        for update skip locked
    ) as page;
    update resource_use as use
    set skipped_at = null
    from unnest(names, keys) as page (resource, key)
    where use.resource = any (array[page.resource]) and use.key = page.key;
    return query select distinct unparked.lambda from duly_unpark(names, keys) as unparked;
end $$;

-- Forgets which start times a resource gave, from a key on. Returns the key to go on from; null: that was all.
create function duly_forget_starts(asked text, from_key text) returns text language plpgsql as $$
declare
    keys text[];
begin
    select array_agg(page.key order by page.key) into keys
    from (
        select use.key from resource_use as use where use.resource = asked and use.key >= from_key
        order by use.key limit 2000 for update
    ) as page;
    update resource_use as use
    set starts_until = null, started_until = null
    from unnest(keys) as page (key)
    where use.resource = asked and use.key = page.key and use.starts_until is not null;
    return keys[2000];
end $$;

-- Makes due what is put off to a start time of these resources, of some tasks from an id on. Returns their lambdas, and the id to
-- go on from; null: that was all.
create function duly_end_delays(asked text[], after_id uuid, out lambdas text[], out next_id uuid) language plpgsql as $$
declare
    ids uuid[];
    needs jsonb[] := array(select jsonb_build_array(jsonb_build_object('name', each.name)) from unnest(asked) as each (name));
begin
    select array_agg(page.task_id order by page.task_id) into ids
    from (
        select assoc.task_id from task_assoc as assoc where assoc.task_id > after_id order by assoc.task_id limit 5000
    ) as page;
    next_id := ids[5000];
    with put_off as (
        select assoc.task_id
        from task_assoc as assoc
        where assoc.task_id between ids[1] and ids[cardinality(ids)] and assoc.start_at > duly_now()
            and assoc.status::text in ('new', 'retriable_failure')
            and assoc.resources @> any (needs)
        order by assoc.task_id
        for update
    ), due as (
        update task_assoc as assoc
        set next_trigger_at = greatest(assoc.due_at, (select duly_now())), start_at = null,
            events = duly_note(assoc.events, 'rate_lifted', (select duly_now()), greatest(assoc.due_at, (select duly_now())))
        from put_off
        where assoc.task_id = any (array[put_off.task_id])
        returning assoc.lambda
    )
    select coalesce(array_agg(distinct due.lambda), '{}') into lambdas from due;
end $$;

-- Removes a resource that nobody holds or waits for. What was put off by its rate is for the caller to make due
-- (duly_end_delays). Null: there is none; false: it is in use.
create function duly_delete_resource(asked text) returns boolean language plpgsql as $$
begin
    lock table resource_use in exclusive mode;
    if not exists (select from resource where name = asked) then
        return null;
    end if;
    if exists (select from resource_use as use where use.resource = asked and use.used > 0)
        or exists (select from task_assoc as assoc where assoc.status = 'waiting' and assoc.parked_on = asked)
    then
        return false;
    end if;
    -- there may be many keys: these are removed as others that nobody uses
    delete from resource_use where resource = asked and key = '';
    delete from resource where name = asked;
    return true;
end $$;

-- Time tables: what they say, what operators decided about them, and where they stand.

-- One row for each. The definition is overwritten by what an application declares, as long as nobody else changed it.
create table time_table (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,127}$'),
    lambda text not null,
    collection text not null,
    priority smallint not null check (priority between 1 and 4),
    payload_encoding smallint not null check (payload_encoding in (1, 2, 3)),
    payload bytea not null check (octet_length(payload) <= 1048576),
    cron text check (octet_length(cron) between 1 and 256),
    every interval check (every >= interval '1 second'),
    every_offset interval not null check (every_offset >= interval '0'),
    zone text not null check (octet_length(zone) between 1 and 64),
    catch_up smallint not null check (catch_up between 1 and 3),
    catch_up_window interval not null check (catch_up_window > interval '0'),
    overlap smallint not null check (overlap between 1 and 4),
    jitter interval not null check (jitter >= interval '0'),
    declared boolean not null,
    revision bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- What operators decide: no declaration writes it.
    paused_at timestamptz,
    pause_note text check (octet_length(pause_note) <= 1024),
    -- Where it stands. A tick before next_tick_at was decided about, one from it on was not.
    next_tick_at timestamptz check (isfinite(next_tick_at)),
    next_fire_at timestamptz check (isfinite(next_fire_at)),
    buffered_tick_at timestamptz,
    last_tick_at timestamptz,
    last_task_id uuid,
    problem text check (octet_length(problem) <= 1024),
    -- Of each of its tasks, as in task; but the session is the key alone, for its namespace is that of the lambda.
    resources jsonb,
    session text,
    session_order smallint,
    session_policy smallint,
    -- What becomes of ticks in closed time. All are null, or none is.
    calendar text,
    on_closed smallint,
    business_hours boolean,
    working_day smallint,
    -- Of each of its tasks, as in task.
    fair_key text check (octet_length(fair_key) between 1 and 128),
    attributes jsonb,
    constraint time_table_has_a_rhythm check ((cron is null) <> (every is null)),
    -- What has a tick ahead is looked at.
    constraint time_table_has_a_trigger check ((next_tick_at is null) = (next_fire_at is null)),
    constraint time_table_pause_is_whole check (pause_note is null or paused_at is not null)
) with (
    -- each tick writes its row
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
create index time_table_due on time_table (next_fire_at) where paused_at is null and next_fire_at is not null;
create index time_table_buffered on time_table (name) where paused_at is null and buffered_tick_at is not null;
create index time_table_by_calendar on time_table (calendar) where calendar is not null;

-- Working days. Who changes one, or makes a time table name one, has locked the row "calendars" of `turn`.
create table calendar (
    name text primary key check (octet_length(name) <= 128),
    holidays text[] not null check (cardinality(holidays) <= 8),
    weekend text[] not null,
    closed date[] not null check (cardinality(closed) <= 1000),
    opened date[] not null check (cardinality(opened) <= 1000),
    hours text[] not null check (cardinality(hours) <= 50),
    note text not null check (octet_length(note) <= 1024),
    revision bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
insert into turn (name) values ('calendars');

-- Gates and breakers.

-- Each change of a gate or breaker raises the version, in its transaction: services remember the rest.
create table gate_version (version bigint not null);
insert into gate_version values (1);

-- What operators decide about tasks that nobody runs yet. A task is hit if it has all that the scope names.
create table gate (
    name text primary key check (octet_length(name) between 1 and 255),
    -- Another gate of the same name has another id: tasks remember ids.
    gate_id bigint generated always as identity unique,
    kind text not null check (kind in ('pause', 'drop', 'delay')),
    -- A lambda, a prefix that ends with an asterisk, or an asterisk alone.
    lambda text not null check (octet_length(lambda) between 1 and 255),
    collection text check (octet_length(collection) between 1 and 128),
    priority smallint check (priority between 1 and 4),
    session text check (octet_length(session) between 1 and 255),
    delay interval check (delay > interval '0'),
    owner text not null check (octet_length(owner) <= 255),
    reason text not null check (octet_length(reason) <= 1024),
    created_at timestamptz not null,
    -- Null: until an operator removes it.
    expires_at timestamptz check (isfinite(expires_at)),
    -- Of a breaker that is half open: its probes are due by then.
    probes_until timestamptz,
    constraint gate_delay_is_whole check ((delay is not null) = (kind = 'delay')),
    constraint gate_probes_pass_a_pause check (probes_until is null or kind = 'pause')
);

-- The failure rate at which a lambda is paused, and where its breaker stands.
create table breaker (
    lambda text primary key check (octet_length(lambda) between 1 and 255),
    failure_rate double precision not null check (failure_rate > 0 and failure_rate <= 1),
    minimum integer not null check (minimum >= 1),
    count_window interval not null check (count_window > interval '0'),
    pause interval not null check (pause > interval '0'),
    probes integer not null check (probes >= 1),
    owner text not null check (octet_length(owner) <= 255),
    reason text not null check (octet_length(reason) <= 1024),
    changed_at timestamptz not null,
    state text not null default 'closed' check (state in ('closed', 'open', 'half_open')),
    state_since timestamptz not null,
    -- While it is half open: how many tasks it let through.
    probed integer not null default 0 check (probed >= 0)
);

-- How runs of lambdas that have a breaker ended, by second; each HSC adds its own.
create table breaker_count (
    lambda text not null,
    second timestamptz not null,
    ended integer not null,
    failed integer not null check (failed between 0 and ended),
    primary key (lambda, second)
);

-- Hosts and services, as they report themselves.

-- A Controller with its Executors. It reports again each interval: nothing is decided by what it says, people look at it.
create table host (
    -- New for each start of a Controller.
    host_id text primary key check (length(host_id) between 1 and 255),
    name text not null check (octet_length(name) <= 255),
    -- Of Duly.
    version text not null check (octet_length(version) <= 255),
    queue_backend text not null check (octet_length(queue_backend) <= 32),
    started_at timestamptz not null check (isfinite(started_at)),
    first_reported_at timestamptz not null,
    reported_at timestamptz not null,
    report_interval interval not null check (report_interval > interval '0'),
    -- It takes no more tasks; it said that it ended.
    draining boolean not null,
    stopped boolean not null,
    -- The principal that reports it, and the only one that may; empty: nobody is asked who they are.
    reported_by text not null,
    -- [{"executor_id", "pid", "version", "processes", "slots", "busy_slots", "started_at", "lambda_set"}]
    executors jsonb not null,
    -- Of what host_lambda has of it; empty: nothing yet.
    lambdas_digest bytea not null default '' check (octet_length(lambdas_digest) <= 32),
    -- When what it has of the live settings was read from this store, at the earliest; null: unknown.
    settings_read_at timestamptz,
    -- By how much its wall clock was ahead of this store's, as it measured; null: unknown. It decides nothing.
    clock_ahead interval,
    -- The pool whose worker it says it is; empty: of none.
    pool text not null default '' check (octet_length(pool) <= 63),
    -- Since when it is to take no more tasks and end, as the autoscaler decided; it is told in the answer to a report.
    drain_requested_at timestamptz
) with (
    -- each report writes its row
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- Which lambdas the Executors of a host serve, by set: Executors of one application have the same. Written when it changes.
create table host_lambda (
    host_id text not null references host on delete cascade,
    lambda text not null check (octet_length(lambda) between 1 and 2048),
    lambda_set smallint not null,
    version text not null,
    primary key (host_id, lambda, lambda_set)
);
create index host_by_pool on host (pool) where pool <> '';
create index host_lambda_by_lambda on host_lambda (lambda, host_id);

-- A process of a Frontend, an HSC or a Store Consumer.
create table service_instance (
    instance_id text primary key check (length(instance_id) between 1 and 255),
    service text not null,
    host_name text not null,
    version text not null,
    address text not null,
    started_at timestamptz not null,
    reported_at timestamptz not null,
    report_interval interval not null,
    stopped boolean not null,
    settings_read_at timestamptz,
    clock_ahead interval,
    -- The newest schema that it knows; null: it is of a release that did not say.
    schema_version text
) with (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- The trends: what happened in each minute of a day, in each hour of a week, and in each day of a quarter (decisions 0104, 0113).

-- Of one lambda, or of all together (''). HSCs add how runs began and ended, a Store Consumer what it counts. A process that is killed
-- loses what it had not added, a minute at most. Nothing is decided by it: people look at it.
create table trend_point (
    -- How long it is: 1, 60 or 1440.
    minutes smallint not null check (minutes in (1, 60, 1440)),
    lambda text collate "C" not null check (octet_length(lambda) <= 2048),
    -- When it begins.
    at timestamptz not null,
    -- Tasks that were scheduled.
    scheduled bigint not null default 0,
    -- Runs that began, by how late they did: a number for each place of trends/rules.py.
    lateness bigint[] not null default '{}',
    -- Tasks that ended, dead letters among them.
    ended bigint not null default 0,
    dead bigint not null default 0,
    -- Runs that did not succeed.
    failed_runs bigint not null default 0,
    -- When the numbers below were measured; null: not yet. Of an hour they are the largest of its minutes.
    measured_at timestamptz,
    -- Tasks that were due and taken by nobody, a lower bound for long queues; those that workers had; and for how long the first was due.
    ready bigint not null default 0,
    held bigint not null default 0,
    oldest interval,
    -- Slots of hosts that were alive. Of '' those of all hosts.
    slots bigint not null default 0,
    -- Of '' only: calls that schedule and had to be accepted, and those of them that were not.
    calls bigint not null default 0,
    failed_calls bigint not null default 0,
    primary key (minutes, lambda, at)
);
create index trend_point_by_time on trend_point (minutes, at);

-- Objectives of lambdas (decision 0127).

-- What operators promise of the starts of some lambdas, in place of what the settings say: `share` of the runs begin at most `start_within`
-- after they could.
create table start_objective (
    -- A lambda, or a prefix that ends with an asterisk. The longest that fits a lambda holds for it.
    lambda text collate "C" primary key check (octet_length(lambda) between 1 and 255 and lambda <> '*'),
    share double precision not null check (share > 0 and share < 1),
    -- One of the bounds by which starts are counted (config/live_sections.py).
    start_within interval not null check (start_within > interval '0'),
    changed_at timestamptz not null
);

-- Pools of workers, what the autoscaler plans for them, and which autoscaler leads.

-- What operators declared. The autoscaler reads it before each plan.
create table worker_pool (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    -- Names of lambdas, or patterns.
    lambdas text[] not null check (cardinality(lambdas) between 1 and 100),
    labels text[] not null check (cardinality(labels) <= 32),
    minimum integer not null check (minimum >= 0),
    maximum integer not null check (maximum between minimum and 10000),
    slots integer not null check (slots between 1 and 100000),
    -- How long a due task may wait for a worker.
    target_age interval not null check (target_age > interval '0'),
    -- How long fewer workers must be enough before some are ended.
    idle_time interval not null check (idle_time >= interval '0'),
    -- Worker time in a day of UTC; null: as much as it needs.
    budget interval check (budget > interval '0'),
    -- A driver of the autoscaler's own settings, and what it is told of this pool: {"name": "text"}.
    driver text not null check (octet_length(driver) between 1 and 63),
    driver_settings jsonb not null check (octet_length(driver_settings::text) <= 16384),
    note text not null check (octet_length(note) <= 1024),
    changed_at timestamptz not null
);

-- The last plan of each pool. Only the autoscaler that leads writes it, under its fence.
create table pool_plan (
    pool text primary key references worker_pool on delete cascade,
    fence bigint not null,
    desired integer not null check (desired >= 0),
    reasons text[] not null,
    planned_at timestamptz not null,
    -- Since when so many workers are desired.
    desired_since timestamptz not null,
    -- What the next plan has to know: `memory.py`.
    memory jsonb not null,
    -- More workers that will be needed, when they will be asked for, and why.
    announced jsonb,
    -- Why the driver does not do what it is told, and since when; null: it does.
    failure text check (octet_length(failure) <= 2048),
    failed_since timestamptz,
    constraint pool_plan_failure_is_whole check ((failure is null) = (failed_since is null))
) with (
    -- each plan writes its row
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- Which autoscaler leads: one row. Whoever takes the lease over raises the fence, so that a former leader writes nothing.
create table autoscaler_lease (
    is_only boolean primary key default true check (is_only),
    holder text not null check (octet_length(holder) <= 255),
    fence bigint not null,
    -- By Postgres's clock.
    until_at timestamptz not null
);
insert into autoscaler_lease (holder, fence, until_at) values ('', 0, 'epoch');

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

-- Settings that operators change while Duly runs.

-- Settings that operators change while Duly runs: one row for each that is not at its process's own value.
create table setting (
    name text primary key,
    value text not null,
    changed_at timestamptz not null,
    check (length(name) between 1 and 100 and length(value) between 1 and 100)
);

-- What the Store Consumer that started last has in its own file or environment, where that is not the default: for
-- operators to see. Nothing is decided by it.
create table own_setting (
    name text primary key,
    value text not null,
    changed_at timestamptz not null
);

-- What operators had set of [timing] until lately. Leases of it may be in force until until_at, so Store Consumers wait for
-- them after a failover.
create table former_setting (
    name text not null check (length(name) between 1 and 100),
    value text not null check (length(value) between 1 and 100),
    until_at timestamptz not null check (isfinite(until_at)),
    primary key (name, value)
);

-- What retention does that only the tables' owner may.

create function public.duly_add_partition(name text, lowest uuid, upper uuid)
    returns void language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $function$
declare
    parent text;
    options text;
    given record;
begin
    if name !~ '^[0-9]{8}(t[0-9]{6})?$' then
        raise exception using errcode = 'invalid_parameter_value', message = 'a partition is named after its first instant';
    end if;
    foreach parent in array array['attempt', 'task'] loop  -- as statements that write both begin
        options := case parent
            when 'task' then 'fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0'
            else 'fillfactor = 100'
        end;
        execute format(
            'create table public.%I (like public.%I including defaults including constraints) with (%s)',
            parent || '_' || name, parent, options
        );
        for given in
            select privilege_type as privilege, grantee::regrole as role
            from pg_class, aclexplode(relacl)
            where pg_class.oid = format('public.%I', parent || '_rest')::regclass
                and grantee not in (0, relowner)
        loop
            execute format('grant %s on public.%I to %s', given.privilege, parent || '_' || name, given.role);
        end loop;
        execute format('lock table public.%I in access exclusive mode', parent || '_rest');
        execute format(
            'with moved as (delete from public.%I where task_id >= %L and task_id < %L returning *)
                insert into public.%I select * from moved',
            parent || '_rest', lowest, upper, parent || '_' || name
        );
        execute format(
            'alter table public.%I attach partition public.%I for values from (%L) to (%L)',
            parent, parent || '_' || name, lowest, upper
        );
    end loop;
end $function$;

create function public.duly_drop_partition(name text, lowest uuid, upper uuid, survivors uuid[], most integer)
    returns integer language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $function$
declare
    ids uuid[];
begin
    if name !~ '^(first|[0-9]{8}(t[0-9]{6})?)$' then
        raise exception using errcode = 'invalid_parameter_value', message = 'there is no such partition';
    end if;
    -- the history first: it is what statements that write both begin with
    execute format('alter table public.attempt detach partition public.%I', 'attempt_' || name);
    execute format('alter table public.task detach partition public.%I', 'task_' || name);
    select array_agg(found.task_id) into ids
    from (
        select unnest(survivors) as task_id
        union
        (
            select assoc.task_id from public.task_assoc as assoc
            where assoc.task_id >= lowest and assoc.task_id < upper
            limit most + 1
        )
    ) as found;
    if cardinality(ids) > most then
        return null;  -- whoever called rolls back
    end if;
    ids := coalesce(ids, array[]::uuid[]);
    execute format('insert into public.task select * from public.%I where task_id = any($1)', 'task_' || name)
        using ids;
    execute format('insert into public.attempt select * from public.%I where task_id = any($1)', 'attempt_' || name)
        using ids;
    -- what ended its time since the keys were looked through: without its task a key would be taken for ever
    delete from public.idempotency_key as key
    where key.task_id >= lowest and key.task_id < upper and key.task_id not in (select unnest(ids));
    execute format('drop table public.%I, public.%I', 'task_' || name, 'attempt_' || name);
    return cardinality(ids);
end $function$;

create function public.duly_forget_audit_events(before timestamptz, most integer)
    returns bigint language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $function$
declare
    forgotten bigint;
begin
    delete from public.audit_event
    where event_id in (
        select oldest.event_id
        from (select event_id, at from public.audit_event order by event_id limit most) as oldest
        where oldest.at < least(duly_forget_audit_events.before, public.duly_now() - interval '1 day')
    );
    get diagnostics forgotten = row_count;
    return forgotten;
end $function$;

revoke execute on function public.duly_add_partition, public.duly_drop_partition,
    public.duly_forget_audit_events from public;

-- The function by which clients schedule in their own transactions.

-- What a task of a lambda needs of resources, as the store keeps it: `asked` has names, or objects with name, key and weight. Else a
-- field with its problem, or the first resource that is not declared for this lambda.
create function public.duly_read_needs(
    asked json, lambda text, out needs jsonb, out field text, out problem text, out unknown text
) language plpgsql stable set search_path = pg_catalog, pg_temp as $function$
#variable_conflict use_variable
declare
    need record;
    per_key boolean;
    weight integer;
begin
    field := 'resources';
    if json_typeof(asked) <> 'array' or json_array_length(asked) not between 1 and 8 then
        problem := 'must be an array of 1 to 8 names, or of objects with name, key and weight, or null';
        return;
    end if;
    for need in
        select json_typeof(each.value) as kind, each.value, each.number - 1 as place,
            case when json_typeof(each.value) = 'string' then each.value #>> '{}' else each.value ->> 'name' end as name,
            case when json_typeof(each.value) = 'object' then coalesce(each.value ->> 'key', '') else '' end as key,
            case when json_typeof(each.value) = 'object' then coalesce(each.value ->> 'weight', '1') else '1' end as weight
        from json_array_elements(asked) with ordinality as each (value, number)
    loop
        if need.kind not in ('string', 'object') or need.name is null then
            problem := 'must have names, or objects with name, key and weight';
            return;
        elsif need.kind = 'object' and exists (
            select from json_object_keys(need.value) as known (key) where known.key not in ('name', 'key', 'weight')
        ) then
            problem := format('%s has a field that is none of name, key and weight', left(need.value::text, 100));
            return;
        elsif need.weight !~ '^[0-9]{1,4}$' or need.weight::integer not between 1 and 1000 then
            problem := format('the weight of %s must be 1 to 1,000', left(need.name, 128));
            return;
        elsif need.name ~ '^(lambda|namespace|domain|schedule|schedule-namespace):' then
            problem := format('%s is a quota: leave it out, it counts anyway', left(need.name, 128));
            return;
        end if;
        select resource.per_key into per_key from public.resource where resource.name = need.name;
        if not found or strpos(need.name, '/') > 0 and split_part(need.name, '/', 1) <> left(lambda, greatest(strpos(lambda, '/') - 1, 0))
        then
            unknown := need.name;
            return;
        elsif per_key and octet_length(need.key) not between 1 and 255 then
            problem := format('%s has keys: give one of 1 to 255 bytes', left(need.name, 128));
            return;
        elsif not per_key and need.key <> '' then
            problem := format('%s has no keys: leave it out', left(need.name, 128));
            return;
        end if;
        needs := coalesce(needs, '[]') || jsonb_build_object('name', need.name, 'key', need.key, 'weight', need.weight::integer);
    end loop;
    if (select count(distinct (each ->> 'name', each ->> 'key')) from jsonb_array_elements(needs) as each) < jsonb_array_length(needs)
    then
        problem := 'one resource and key is named twice: add up the weights';
        return;
    end if;
    select jsonb_agg(each order by each ->> 'name' collate "C", each ->> 'key' collate "C") into needs
    from jsonb_array_elements(needs) as each;
    field := null;
end
$function$;

revoke execute on function public.duly_read_needs from public;

-- The attributes of a task as the store keeps them, from an object of names and values; null if it is empty. Else a problem.
create function public.duly_read_attributes(asked json, out attributes jsonb, out problem text)
    language plpgsql immutable set search_path = pg_catalog, pg_temp as $function$
#variable_conflict use_variable
declare
    each record;
    name text;
    value text;
    kept jsonb;
    found jsonb := '{}';
begin
    if json_typeof(asked) <> 'object' then
        problem := 'must be an object of names and values, such as {"order": 17}, or null';
        return;
    elsif (select count(*) from json_object_keys(asked)) > 8 then
        problem := format('there may be at most 8, not %s', (select count(*) from json_object_keys(asked)));
        return;
    end if;
    for each in select known.key, known.value, json_typeof(known.value) as kind from json_each(asked) as known loop
        name := each.key;
        value := each.value #>> '{}';
        if name !~ '^[a-z][a-z0-9_.-]{0,63}$' then
            problem := format('%L is no name of an attribute: write a lower-case letter, then up to 63 lower-case letters, digits, '
                '_, . and -', left(name, 64));
        elsif found ? name then
            problem := 'one name is given twice: an attribute has one value';
        elsif each.kind = 'string' then
            kept := to_jsonb(value);
            if octet_length(value) not between 1 and 256 then
                problem := format('the text of %s must be 1 to 256 bytes of UTF-8: use a hash of a longer text', name);
            end if;
        elsif each.kind = 'boolean' then
            kept := to_jsonb(value::boolean);
        elsif each.kind = 'number' and value ~ '^-?[0-9]{1,19}$' and value::numeric between -9223372036854775808 and 9223372036854775807 then
            kept := to_jsonb(value::bigint);
        else
            problem := format('the value of %s must be a text, an integer of 64 bits, or a flag', name);
        end if;
        if problem is not null then
            return;
        end if;
        found := found || jsonb_build_object(name, kept);
    end loop;
    attributes := nullif(found, '{}');
exception
    when untranslatable_character or invalid_text_representation then
        problem := 'has a character that a text cannot have, such as \u0000';
end
$function$;

revoke execute on function public.duly_read_attributes from public;

-- As a transaction of a client commits, puts its tasks into their sessions: those of `duly_schedule` that have one. Not before, so that
-- a transaction that lasts holds no session, for whose rows the ends of tasks would wait. Sessions are locked in the order of
-- their keys, whatever the order of the calls was; the tasks of one are in the order of the calls. The first row does it for all.
create function public.duly_enter_sessions() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $function$
declare
    entered uuid[];
    line record;
    head_id uuid;
    seq bigint;
begin
    with gone as (
        delete from public.session_entry where xact = pg_current_xact_id() returning task_id, number
    )
    select array_agg(gone.task_id order by gone.number) into entered from gone;
    if entered is null then
        return null;
    end if;
    for line in
        select task.session as key, array_agg(task.task_id order by asked.place) as task_ids, count(*)::integer as number
        from unnest(entered) with ordinality as asked (task_id, place)
        cross join lateral (
            select known.task_id, known.session from public.task as known where known.task_id = asked.task_id limit 1
        ) as task
        group by task.session
        order by task.session collate "C"
    loop
        insert into public.session as known (key, head, length, last_seq)
        values (line.key, line.task_ids[1], line.number, line.number)
        on conflict (key) do update
        set length = known.length + excluded.length, last_seq = known.last_seq + excluded.last_seq
        returning known.head, known.last_seq into head_id, seq;
        insert into public.task_assoc (
            task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at, session, session_rank, session_seq, session_policy
        )
        select task.task_id, task.lambda, task.collection, task.priority, task.expires_at, task.resources, task.fair_key,
            case when task.task_id = head_id then 'new' else 'waiting' end::public.task_status,
            case when task.task_id = head_id then task.scheduled_at else coalesce(task.expires_at, 'infinity') end,
            task.scheduled_at, task.session, '-infinity', seq - line.number + asked.place, task.session_policy
        from unnest(line.task_ids) with ordinality as asked (task_id, place)
        cross join lateral (
            select * from public.task as known where known.task_id = asked.task_id limit 1
        ) as task;
    end loop;
    return null;
end
$function$;

revoke execute on function public.duly_enter_sessions from public;

create constraint trigger entry_joins_its_session after insert on public.session_entry
    deferrable initially deferred for each row execute function public.duly_enter_sessions();

create function public.duly_schedule(
    lambda text, payload json default null, raw_payload bytea default null, priority integer default 3,
    collection text default '', scheduled_at timestamptz default null, delay interval default null,
    expires_at timestamptz default null, idempotency_key text default null, task_id uuid default null,
    fair_key text default null, resources json default null, session text default null, on_failure integer default 1,
    attributes json default null
) returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $function$
#variable_conflict use_variable
declare  -- columns are written with their table: a new one must not take the place of a variable
    asked_at timestamptz := public.duly_now();
    asked_ms bigint := floor(extract(epoch from asked_at) * 1000);
    day_ms constant bigint := 86400000;
    data bytea := coalesce(duly_schedule.raw_payload, convert_to(duly_schedule.payload::text, 'UTF8'), '');
    encoding smallint := case when duly_schedule.raw_payload is null then 1 else 2 end;
    due_at timestamptz;
    most integer;
    id uuid := duly_schedule.task_id;
    first_task uuid;
    is_same boolean;
    tries integer := 0;
    stamp text;
    problem text;
    field text;
    -- the whole name of the session, whose namespace is that of the lambda
    line text := left(duly_schedule.lambda, greatest(strpos(duly_schedule.lambda, '/') - 1, 0)) || '/' || duly_schedule.session;
    session_order constant integer := 1;
    needs jsonb;
    unknown text;
    found_by jsonb;
begin
    select least(known.payload_limit, 1048576) into most
    from public.lambda as known where known.name = duly_schedule.lambda;
    if most is null then
        raise exception using errcode = 'DY002', column = 'lambda', message = format(
            'no lambda %L is registered: start a worker that declares it (duly worker MODULE:APP), or fix the name',
            left(duly_schedule.lambda, 128));
    end if;
    if duly_schedule.raw_payload is not null and duly_schedule.payload is not null then
        field := 'raw_payload'; problem := 'give either payload or raw_payload, not both';
    elsif duly_schedule.priority is null or duly_schedule.priority not between 1 and 4 then
        field := 'priority'; problem := 'must be 1 (urgent), 2 (high), 3 (normal) or 4 (low)';
    elsif duly_schedule.collection is null or duly_schedule.collection !~ '^([a-z0-9][a-z0-9_.-]{0,127})?$' then
        field := 'collection';
        problem := 'must be 1 to 128 of the characters a-z, 0-9, ''_'', ''.'', ''-'', beginning with a letter or a '
            'digit, or empty';
    elsif duly_schedule.scheduled_at is not null and duly_schedule.delay is not null then
        field := 'delay'; problem := 'give either scheduled_at or delay, not both';
    elsif not isfinite(coalesce(duly_schedule.scheduled_at, asked_at)) then
        field := 'scheduled_at'; problem := 'must be an instant';
    elsif not isfinite(coalesce(duly_schedule.expires_at, asked_at)) then
        field := 'expires_at'; problem := 'must be an instant';
    elsif duly_schedule.delay < interval '0' then
        field := 'delay'; problem := 'must not be negative: leave it out to run the task now';
    elsif duly_schedule.delay > interval '365 days' or duly_schedule.scheduled_at > asked_at + interval '365 days' then
        field := case when duly_schedule.delay is null then 'scheduled_at' else 'delay' end;
        problem := 'may be at most 365 days ahead: schedule it when that time is nearer';
    elsif octet_length(duly_schedule.idempotency_key) not between 1 and 255 then
        field := 'idempotency_key'; problem := 'must be 1 to 255 bytes of UTF-8';
    elsif octet_length(duly_schedule.fair_key) not between 1 and 128 then
        field := 'fair_key'; problem := 'must be 1 to 128 bytes of UTF-8';
    elsif starts_with(duly_schedule.idempotency_key, 'time-table:') then
        field := 'idempotency_key'; problem := 'must not begin with ''time-table:'': the keys of ticks do';
    elsif duly_schedule.idempotency_key is not null and id is not null then
        field := 'task_id'; problem := 'say either task_id or idempotency_key: each alone makes a repeat safe';
    elsif id is not null and id::text !~ '^.{14}7.{4}[89ab]' then
        field := 'task_id'; problem := 'must be a UUID of version 7, or be left out';
    elsif octet_length(duly_schedule.session) not between 1 and 255 then
        field := 'session'; problem := 'must be 1 to 255 bytes of UTF-8: use a hash of a longer key';
    elsif duly_schedule.on_failure is null or duly_schedule.on_failure not between 1 and 3 then
        field := 'on_failure'; problem := 'must be 1 (skip), 2 (block) or 3 (fail the rest)';
    elsif duly_schedule.resources is not null then
        select found.field, found.problem, found.needs, found.unknown into field, problem, needs, unknown
        from public.duly_read_needs(duly_schedule.resources, duly_schedule.lambda) as found;
        if unknown is not null then
            raise exception using errcode = 'DY005', column = 'resources', message = format(
                'resources: no resource %L is declared for this lambda: fix the name (`duly resources list` shows them), or let an '
                'operator declare it (`duly resources set NAME CAPACITY`)', left(unknown, 128));
        end if;
    end if;
    if problem is null and duly_schedule.attributes is not null then
        field := 'attributes';
        select read.attributes, read.problem into found_by, problem
        from public.duly_read_attributes(duly_schedule.attributes) as read;
    end if;
    if problem is not null then
        raise exception using errcode = 'DY001', column = field, message = field || ': ' || problem;
    end if;
    if octet_length(data) > most then
        raise exception using errcode = 'DY003', column = 'payload', message = format(
            'payload: %s bytes exceed the %s that %s takes: put large data elsewhere and send its address, or raise the '
            'lambda''s payload_limit', octet_length(data), most, duly_schedule.lambda);
    end if;
    due_at := greatest(asked_at, coalesce(duly_schedule.scheduled_at, asked_at + duly_schedule.delay, asked_at));
    if id is null then  -- UUIDv7: 48 bits of milliseconds, then a random UUID's, with the version changed
        stamp := lpad(to_hex(asked_ms), 12, '0');
        id := overlay(gen_random_uuid()::text placing left(stamp, 8) || '-' || right(stamp, 4) || '-7' from 1)::uuid;
    elsif abs(('x' || left(id::text, 8) || substr(id::text, 10, 4))::bit(48)::bigint - asked_ms) > day_ms then
        field := 'task_id';
        problem := 'its time is more than a day from now, and there is no such task: leave it out';
    end if;
    if duly_schedule.expires_at <= asked_at then
        field := 'expires_at'; problem := 'is in the past: the task could never run';
    end if;
    loop
        -- Written first, and looked for only if it is there: repeats are rare. A repeat is answered whatever the time is; what
        -- is new has to be of now.
        if problem is null then
            if duly_schedule.idempotency_key is not null then
                insert into public.idempotency_key (lambda, key, task_id, created_at)
                values (duly_schedule.lambda, duly_schedule.idempotency_key, id, asked_at)
                on conflict do nothing;  -- which waits for another transaction that has written the key
            end if;
            if duly_schedule.idempotency_key is null or found then
                insert into public.task (task_id, lambda, collection, priority, payload_encoding, payload, expires_at, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, attributes, created_at, scheduled_at)
                values (id, duly_schedule.lambda, duly_schedule.collection, duly_schedule.priority, encoding, data, duly_schedule.expires_at, line, case when line is not null then session_order end, case when line is not null then duly_schedule.on_failure end, needs, session_user, duly_schedule.fair_key, null, found_by, asked_at, due_at)
                on conflict do nothing;
                exit when found;
            end if;
        end if;
        first_task := null;
        if duly_schedule.idempotency_key is not null then
            select key.task_id into first_task from public.idempotency_key as key
            where key.lambda = duly_schedule.lambda and key.key = duly_schedule.idempotency_key;
        elsif duly_schedule.task_id is not null then
            select task.task_id into first_task from public.task where task.task_id = id;
        end if;
        if first_task is not null then
            select
                task.lambda is not distinct from duly_schedule.lambda and task.collection is not distinct from duly_schedule.collection and task.session is not distinct from line and task.resources is not distinct from needs and task.fair_key is not distinct from duly_schedule.fair_key and task.attachments is not distinct from null and task.attributes is not distinct from found_by and case
                    when task.scheduled_as is not null then task.scheduled_as = sha256(
                        data || int2send(encoding) || int2send(duly_schedule.priority::smallint))
                    else task.payload = data and task.payload_encoding = encoding
                        and task.priority = duly_schedule.priority
                end into is_same
            from public.task where task.task_id = first_task;
            if is_same then
                return first_task;
            end if;
            tries := tries + 1;
            continue when is_same is null and tries < 10;  -- purged between the two reads: so is its key
            raise exception using errcode = 'DY004', column = 'idempotency_key', message = format(
                'idempotency_key: task %s has this key or id, with another lambda, payload, priority, collection, session, resources '
                'or attributes: use another key for another task', first_task);
        elsif problem is not null then
            raise exception using errcode = 'DY001', column = field, message = field || ': ' || problem;
        end if;
    end loop;
    if found_by is not null then
        insert into public.task_attribute (name, value, task_id)
        select each.key, each.value, id from jsonb_each_text(found_by) as each;
    end if;
    if line is null then
        insert into public.task_assoc (task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at)
        values (id, duly_schedule.lambda, duly_schedule.collection, duly_schedule.priority, duly_schedule.expires_at, needs, duly_schedule.fair_key, 'new', due_at, due_at);
    else  -- the commit puts it into its session
        insert into public.session_entry (task_id) values (id);
    end if;
    -- told when this transaction commits; whoever looks then learns when exactly it is due
    if due_at <= asked_at + interval '2 minutes' then
        perform pg_notify(public.duly_channel('duly_due'), '0 ' || duly_schedule.lambda);
    end if;
    return id;
end
$function$;

-- Nobody may call it but who is granted it (duly db grant).
revoke execute on function public.duly_schedule from public;
