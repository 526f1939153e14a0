-- fill: numbers the rows of a range of pages that were there before the key was.
-- Parameters: $1 the first page, $2 the page after the last.
-- Returns: seen, how many rows of the range had no number; pages, how many the table has.
-- Keeps: no writer is waited for: a row that someone has in hand is left for the next round.
-- Relies on: the places of rows: a range of them is read without an index.
with unnumbered as materialized (
    select t.ctid as place
    from {table} t
    where t.ctid >= format('(%s,0)', $1::bigint)::tid
      and t.ctid < format('(%s,0)', $2::bigint)::tid
      and t.{key} is null
    for update skip locked
), filled as (
    update {table} t
    set {key} = nextval('{key_sequence}')
    where t.ctid = any (array(select place from unnumbered))
    returning 1
)
select (
           select count(*)
           from {table} t
           where t.ctid >= format('(%s,0)', $1::bigint)::tid
             and t.ctid < format('(%s,0)', $2::bigint)::tid
             and t.{key} is null
       ) as seen,
       pg_relation_size('{table}') / current_setting('block_size')::bigint as pages,
       (select count(*) from filled) as filled
