-- watermark: the watermark of a space.
-- Parameters: $1 space.
-- Returns: the watermark, or no row if the space does not exist.
-- Keeps: nothing is locked.
-- Relies on: tenure_spaces_pkey.
select watermark
from tenure_spaces
where space = $1
