-- fill: numbers the rows without a number in a range of pages.
-- Parameters: $1 the first page, $2 the page after the last.
-- Returns: seen, the number of rows in the range that had no number before; pages, the number of pages of
--   the table; filled, the number of rows that got a number.
-- Keeps: it does not wait for writers: a row that another transaction has locked stays for the next round.
-- Relies on: row positions (ctid): a range of them is read without an index.
with unnumbered as materialized (
    select t.ctid as row_id
    from {table} t
    where t.ctid >= format('(%s,0)', $1::bigint)::tid
      and t.ctid < format('(%s,0)', $2::bigint)::tid
      and t.{key} is null
    for update skip locked
), filled as (
    update {table} t
    set {key} = nextval('{key_sequence}')
    where t.ctid = any (array(select row_id from unnumbered))
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
