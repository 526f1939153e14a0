-- Version 1 of the schema, part 9 of 9: adopted tables.

-- Adopted tables, what Tenure added to each, and whether the adoption is finished.
create table tenure_tables (
    name        text        collate "C" primary key,
    description json        not null,    -- which column holds which fact
    added       json        not null,    -- columns and indexes that an undo removes
    is_finished boolean     not null default false,
    adopted_at  timestamptz not null default now()
);
