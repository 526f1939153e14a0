-- words: the status words of a table to be adopted, and the number of rows with each.
-- Parameters: none.
-- Returns: word, rows; the 20 most frequent words. No row: the table is empty.
-- Keeps: nothing; it reads only the first 100,000 rows.
-- Relies on: nothing.
-- statement: words
select s.word, count(*)
from (select {word} as word from {table} t limit 100000) as s
group by s.word
order by count(*) desc, s.word
limit 20
