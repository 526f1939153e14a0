-- watermark: the watermark of a space.
-- Parameters: :space.
-- Returns: the watermark, or no row if the space does not exist.
-- Keeps: nothing is changed.
-- Relies on: the unique index on the space.

-- statement: watermark
select watermark
from tenure_spaces
where space = :space;
