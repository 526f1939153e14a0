-- examine: settings and state of the file.
-- Parameters: none.
-- Returns: file: the version of SQLite, the version of Tenure's tables, the journal mode, the page size in
--   bytes, the number of pages and of free ones, the lowest schema version of a program that can use the
--   tables; synchronous, on the writing connection: its level;
--   integrity: the first fault, or ok.
-- Keeps: nothing; it only reads.
-- Relies on: nothing; integrity reads the whole file.

-- statement: file
select
    sqlite_version() as sqlite_version,
    (select coalesce(max(version), 0) from tenure_migrations) as tables_version,
    (select journal_mode from pragma_journal_mode) as journal_mode,
    (select page_size from pragma_page_size) as page_size,
    (select page_count from pragma_page_count) as pages,
    (select freelist_count from pragma_freelist_count) as free,
    (select coalesce(max(readable_from), 0) from tenure_migrations) as readable_from;

-- statement: synchronous
select synchronous
from pragma_synchronous;

-- statement: integrity
select quick_check
from pragma_quick_check
limit 1;
