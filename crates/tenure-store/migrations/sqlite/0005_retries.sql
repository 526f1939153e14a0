-- A job has at most one retry.
-- Old and new programs side by side: an old one that retries a job again is refused by the index.

-- Of several retries of one job the first stays its retry; the others are jobs as any.
update tenure_jobs
set retry_of = null
where retry_of is not null
  and id not in (select min(id) from tenure_jobs where retry_of is not null group by retry_of);
create unique index tenure_jobs_retry_of on tenure_jobs (retry_of) where retry_of is not null;
