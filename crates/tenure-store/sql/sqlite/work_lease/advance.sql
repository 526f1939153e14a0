-- advance: moves the watermark of a space forward, and the bound below which failed offsets are forgotten.
-- Parameters: :space, :watermark, :forgiven.
-- Returns: both, as stored now.
-- Keeps: they never move back.
-- Relies on: the unique index on the space.

-- statement: advance
insert into tenure_spaces (space, watermark, forgiven_below)
values (:space, :watermark, :forgiven)
on conflict (space) do update set
    watermark = max(watermark, excluded.watermark),
    forgiven_below = max(forgiven_below, excluded.forgiven_below)
returning watermark, forgiven_below;
