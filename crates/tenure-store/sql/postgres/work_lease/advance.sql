-- advance: moves the watermark of a space forward, and how far failures are forgiven.
-- Parameters: $1 space, $2 watermark, $3 forgiven.
-- Returns: both, as they now stand.
-- Keeps: they never go back. It waits for those who are just making a domain under the old one.
-- Relies on: tenure_watermarks_pkey.
insert into tenure_watermarks as s (space, watermark, forgiven)
values ($1, $2, $3)
on conflict (space) do update
set watermark = greatest(s.watermark, excluded.watermark),
    forgiven = greatest(s.forgiven, excluded.forgiven)
returning watermark, forgiven
