-- watermark: how far a space is through.
-- Parameters: $1 space.
-- Returns: its watermark, or no row when there is no such space.
-- Keeps: nothing is locked.
-- Relies on: tenure_watermarks_pkey.
select watermark
from tenure_watermarks
where space = $1
