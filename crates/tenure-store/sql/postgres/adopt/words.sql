-- words: the words of a status that is to be adopted, and how many rows have each.
-- Parameters: none.
-- Returns: per word: word, rows; the most frequent first. No row: the table has none.
-- Keeps: nothing; it only reads, and looks at the first 100,000 rows only.
-- Relies on: nothing.
select s.word, count(*) as rows
from (select {word} as word from {table} t limit 100000) as s
group by s.word
order by count(*) desc, s.word
limit 20
