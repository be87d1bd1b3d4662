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
