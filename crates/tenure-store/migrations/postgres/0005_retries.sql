-- A job has at most one retry.
-- Old and new programs side by side: an old one that retries a job again is refused by the index.

-- Nobody writes a second retry before the index is there.
lock table tenure_jobs in share row exclusive mode;

-- Of several retries of one job the first stays its retry; the others are jobs as any.
update tenure_jobs t
set retry_of = null
where exists (select from tenure_jobs f where f.retry_of = t.retry_of and f.id < t.id);
create unique index tenure_jobs_retry_of on tenure_jobs (retry_of) where retry_of is not null;
