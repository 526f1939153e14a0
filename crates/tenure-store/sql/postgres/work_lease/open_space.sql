-- open_space: creates a space, if it does not exist.
-- Parameters: $1 space.
-- Returns: nothing.
-- Keeps: of two concurrent calls one creates it; its watermark is below every offset.
-- Relies on: tenure_spaces_pkey.
insert into tenure_spaces (space)
values ($1)
on conflict (space) do nothing
