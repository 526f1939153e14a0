-- advance: moves the watermark of a space forward, and the bound below which failed offsets are forgotten.
-- Parameters: $1 space, $2 watermark, $3 forgiven.
-- Returns: both, as stored now.
-- Keeps: they never move back. It waits for transactions that are creating a domain under the old
--   watermark.
-- Relies on: tenure_spaces_pkey.
insert into tenure_spaces as s (space, watermark, forgiven_below)
values ($1, $2, $3)
on conflict (space) do update
set watermark = greatest(s.watermark, excluded.watermark),
    forgiven_below = greatest(s.forgiven_below, excluded.forgiven_below)
returning watermark, forgiven_below
