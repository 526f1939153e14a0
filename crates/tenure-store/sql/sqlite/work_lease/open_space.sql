-- open_space: makes a space, if there is none of this name.
-- Parameters: :space.
-- Returns: nothing.
-- Keeps: its watermark is below every offset.
-- Relies on: the unique space.

-- statement: open_space
insert into tenure_watermarks (space)
values (:space)
on conflict (space) do nothing;
