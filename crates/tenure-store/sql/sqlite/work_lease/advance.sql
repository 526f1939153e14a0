-- advance: moves the watermark of a space forward.
-- Parameters: :space, :watermark.
-- Returns: the watermark that now stands.
-- Keeps: it never goes back.
-- Relies on: the unique space.

-- statement: advance
insert into tenure_watermarks (space, watermark)
values (:space, :watermark)
on conflict (space) do update set watermark = max(watermark, excluded.watermark)
returning watermark;
