-- advance: moves the watermark of a space forward, and how far failures are forgiven.
-- Parameters: :space, :watermark, :forgiven.
-- Returns: both, as they now stand.
-- Keeps: they never go back.
-- Relies on: the unique space.

-- statement: advance
insert into tenure_watermarks (space, watermark, forgiven)
values (:space, :watermark, :forgiven)
on conflict (space) do update set
    watermark = max(watermark, excluded.watermark),
    forgiven = max(forgiven, excluded.forgiven)
returning watermark, forgiven;
