-- open_space: makes a space, if there is none of this name.
-- Parameters: $1 space.
-- Returns: nothing.
-- Keeps: of two at once one makes it; its watermark is below every offset.
-- Relies on: tenure_watermarks_pkey.
insert into tenure_watermarks (space)
values ($1)
on conflict (space) do nothing
