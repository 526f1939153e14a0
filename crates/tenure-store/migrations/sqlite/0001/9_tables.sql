-- Version 1 of the schema, part 9 of 9: adopted tables.

-- Adopted tables, what Tenure added to each, and whether the adoption is finished.
create table tenure_tables (
    name        text    primary key not null,
    description text    not null check (json_type(description) = 'object'),
    added       text    not null check (json_type(added) = 'object'),
    is_finished integer not null default 0 check (is_finished in (0, 1)),
    adopted_at  integer not null
) strict;
