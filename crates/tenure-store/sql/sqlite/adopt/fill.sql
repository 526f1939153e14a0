-- fill: numbers some of the rows that existed before the key column.
-- Parameters: :limit.
-- Returns: nothing; the number of changed rows shows whether rows are left.
-- Keeps: no two rows have the same number.
-- Relies on: the unique index on the added key, which also finds the rows without a number.
-- statement: fill
update {table} as t
set {key} = s.number
from (
    select r.rowid as place,
           (select ifnull(max({key}), 0) from {table})
           + row_number() over (order by r.rowid) as number
    from {table} r
    where r.{key} is null
    order by r.rowid
    limit :limit
) as s
where t.rowid = s.place;
