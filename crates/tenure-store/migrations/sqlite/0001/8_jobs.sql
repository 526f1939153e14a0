-- Version 1 of the schema, part 8 of 9: jobs and the checkpoints of their chunks, with the column names of
-- their specification (S5 in docs/CONFORMANCE.md). Both are lease tables: the lease is on the row, and the
-- state is read from locked_until, completed_at and failed_at; no column stores it.

-- Long work. `json text` is text that the content of a row shows as JSON; strict tables do not allow it.
create table tenure_jobs (
    id            integer   primary key autoincrement,
    kind          text      not null check (length(cast(kind as blob)) between 1 and 200),
    matrix_id     text      not null check (length(cast(matrix_id as blob)) between 1 and 200),
    payload       json text not null check (json_valid(payload)),
    priority      integer   not null default 0,
    created_at    integer   not null
                  default (cast((julianday('now') - 2440587.5) * 86400000 + 0.5 as integer) * 1000),
    available_at  integer,
    locked_until  integer,
    locked_by     text,
    lease_token   text,
    fence         integer   not null default 0,
    claimed_at    integer,
    attempts      integer   not null default 0,
    failures      integer   not null default 0,
    crashes       integer   not null default 0,
    generation    integer   not null default 0,
    error_message text,
    completed_at  integer,
    failed_at     integer,
    settled_token text,
    result        json text check (result is null or json_valid(result)),    -- older SQLite: json_valid(null) is 0
    cursor        text,                                                      -- the last position that its handler saved
    chunks_total  integer   check (chunks_total >= 0),
    retry_of      integer,
    check ((completed_at is null and failed_at is null and locked_until is not null)
           = (locked_by is not null)),
    check ((completed_at is null and failed_at is null and locked_until is not null)
           = (locked_until is not null)),
    check (completed_at is null or failed_at is null)
);

-- For claims, in claim order; settled jobs are in none of these.
create index tenure_jobs_claimable on tenure_jobs (priority desc, created_at, id)
where completed_at is null and failed_at is null and locked_until is null;
create index tenure_jobs_alone on tenure_jobs (priority desc, created_at, id)
where completed_at is null and failed_at is null and locked_until is null and crashes >= 2;
create index tenure_jobs_claimed on tenure_jobs (lease_token)
where completed_at is null and failed_at is null and locked_until is not null;

-- For lists, newest first.
create index tenure_jobs_open on tenure_jobs (id) where completed_at is null and failed_at is null;
create index tenure_jobs_failed on tenure_jobs (id) where failed_at is not null;
create index tenure_jobs_kind on tenure_jobs (kind, id);
create index tenure_jobs_matrix on tenure_jobs (matrix_id, id);

-- For prune, the oldest first.
create index tenure_jobs_completed_at on tenure_jobs (completed_at) where completed_at is not null;
create index tenure_jobs_failed_at on tenure_jobs (failed_at) where failed_at is not null;

-- A job has at most one retry.
create unique index tenure_jobs_retry_of on tenure_jobs (retry_of) where retry_of is not null;

-- One row per chunk of a matrix, created by its first claim. A chunk that was synced may be worked on
-- again; one with completed_at may not.
create table tenure_checkpoints (
    id             integer primary key autoincrement,
    matrix_id      text    not null check (length(cast(matrix_id as blob)) between 1 and 200),
    chunk_hash     text    not null check (length(cast(chunk_hash as blob)) between 1 and 200),
    created_at     integer not null
                   default (cast((julianday('now') - 2440587.5) * 86400000 + 0.5 as integer) * 1000),
    last_synced_at integer,
    row_count      integer check (row_count >= 0),
    cursor         text,
    available_at   integer,
    locked_until   integer,
    locked_by      text,
    lease_token    text,
    fence          integer not null default 0,
    claimed_at     integer,
    attempts       integer not null default 0,
    failures       integer not null default 0,
    crashes        integer not null default 0,
    generation     integer not null default 0,
    error_message  text,
    completed_at   integer,
    failed_at      integer,
    settled_token  text,
    unique (matrix_id, chunk_hash),
    check ((completed_at is null and failed_at is null and locked_until is not null)
           = (locked_by is not null)),
    check ((completed_at is null and failed_at is null and locked_until is not null)
           = (locked_until is not null)),
    check (completed_at is null or failed_at is null)
) strict;
create index tenure_checkpoints_claimed on tenure_checkpoints (lease_token)
where completed_at is null and failed_at is null and locked_until is not null;
