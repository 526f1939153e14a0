-- number: fills the columns that cannot have a default here, in rows that are written from now on.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: two rows never have one number: there is one writer, and an index that says so.
-- Relies on: the unique index on the added key.
-- statement: number
create trigger if not exists {trigger} after insert on {table}
begin
    update {table} set {assignments} where rowid = new.rowid;
end;
-- statement: drop
drop trigger if exists {trigger};
