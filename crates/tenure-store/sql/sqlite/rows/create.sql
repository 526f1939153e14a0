-- create: creates a lease table with its indexes.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the columns agree: a claimed, done or dead row has the facts of its state and no others, and no
--   row is in two states.
-- Relies on: nothing. Indexes contain no column that a renewal changes (if `until` gives the state, their
--   conditions only test whether it is null). `json text` is text that the content of a row shows as JSON;
--   times are microseconds since 1970.
-- statement: create
create table {table} (
    {key} integer primary key autoincrement,
    topic text not null,
    payload json text not null check (json_valid(payload)),
    {created_at} integer not null
        default (cast((julianday('now') - 2440587.5) * 86400000 + 0.5 as integer) * 1000),
    {kind} text not null,
    {order_columns}
    {status} text not null default {pending},
    {available_at} integer,
    {holder} text,
    {token} text,
    {fence} integer not null default 0,
    {claimed_at} integer,
    {until} integer,
    {attempts} integer not null default 0,
    {failures} integer not null default 0,
    {crashes} integer not null default 0,
    {generation} integer not null default 0,
    {last_error} text,
    {done_at} integer,
    {dead_at} integer,
    {settled_token} text,
    check ({status} in ({words})),
    check (({bare_claimed}) = ({holder} is not null)),
    check (({bare_claimed}) = ({until} is not null)),
    {claim_checks}
    {end_checks}
);
-- statement: claimable_index
create index {claimable_index} on {table} ({order_index})
where {bare_pending};
-- statement: alone_index
create index {alone_index} on {table} ({order_index})
where {bare_pending} and {crashes} >= 2;
-- statement: claimed_index
create index {claimed_index} on {table} ({token})
where {bare_claimed};
