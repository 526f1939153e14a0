-- advance: moves the watermark of a space forward.
-- Parameters: $1 space, $2 watermark.
-- Returns: the watermark that now stands.
-- Keeps: it never goes back. It waits for those who are just making a domain under the old one.
-- Relies on: tenure_watermarks_pkey.
insert into tenure_watermarks as s (space, watermark)
values ($1, $2)
on conflict (space) do update set watermark = greatest(s.watermark, excluded.watermark)
returning watermark
