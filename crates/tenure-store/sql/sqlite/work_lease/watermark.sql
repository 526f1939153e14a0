-- watermark: how far a space is through.
-- Parameters: :space.
-- Returns: its watermark, or no row when there is no such space.
-- Keeps: nothing is changed.
-- Relies on: the unique space.

-- statement: watermark
select watermark
from tenure_watermarks
where space = :space;
