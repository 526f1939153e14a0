-- Tables of the user's own that are leased in place.
-- Old and new programs side by side: an old one does not know this table and leases nothing in it.

create table tenure_tables (
    name        text    primary key not null,
    description text    not null check (json_type(description) = 'object'),
    added       text    not null check (json_type(added) = 'object'),
    finished    integer not null default 0 check (finished in (0, 1)),
    adopted_at  integer not null
) strict;
