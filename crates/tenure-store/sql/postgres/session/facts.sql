-- facts: tells whose session a connection has.
-- Parameters: none; it is sent as a simple query, which is safe on every session.
-- Returns: whether the server only reads; the mark that the client sent when it started the
-- session; whether that client sent a time zone, as sqlx always does.
-- Keeps: a pooler starts its sessions itself, and sets the values of a client later.
-- Relies on: nothing.
select current_setting('transaction_read_only') = 'on' as only_reads,
    max(setting) filter (where name = 'jit_inline_above_cost' and source = 'client') as mark,
    bool_or(name = 'TimeZone' and source = 'client') as has_zone
from pg_catalog.pg_settings
where name in ('jit_inline_above_cost', 'TimeZone')
