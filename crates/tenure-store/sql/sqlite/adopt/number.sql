-- number: fills the columns that cannot have a default in SQLite, in rows that are written from now on.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: no two rows have the same number: there is one writer, and a unique index.
-- Relies on: the unique index on the added key.
-- statement: number
create trigger if not exists {trigger} after insert on {table}
begin
    update {table} set {assignments} where rowid = new.rowid;
end;
-- statement: drop
drop trigger if exists {trigger};
