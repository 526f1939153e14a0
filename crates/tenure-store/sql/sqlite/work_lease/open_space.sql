-- open_space: creates a space, if it does not exist.
-- Parameters: :space.
-- Returns: nothing.
-- Keeps: its watermark is below every offset.
-- Relies on: the unique index on the space.

-- statement: open_space
insert into tenure_spaces (space)
values (:space)
on conflict (space) do nothing;
