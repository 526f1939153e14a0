-- Tables of the user's own that are leased in place.
-- Old and new programs side by side: an old one does not know this table and leases nothing in it.

create table tenure_tables (
    name        text        collate "C" primary key,
    description json        not null,    -- which column holds which fact
    added       json        not null,    -- columns and indexes that are ours, to be taken away again
    finished    boolean     not null default false,
    adopted_at  timestamptz not null default now()
);
