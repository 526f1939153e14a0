-- enqueue: writes jobs, all or none, one by one in one transaction. A job without a matrix gets its own,
-- named after its number.
-- Parameters: :now, :id, :kind, :matrix or null, :payload, :priority, :available_at or null, :retry_of or
--   null.
-- Returns: next: the number of the next job.
-- Keeps: law 8. There is one writer, so no other job gets the number.
-- Relies on: the key.
-- statement: next
select ifnull((select seq from sqlite_sequence where name = 'tenure_jobs'), 0) + 1
-- statement: job
insert into tenure_jobs
    (id, kind, matrix_id, payload, priority, created_at, available_at, retry_of)
values
    (:id, :kind, ifnull(:matrix, 'job-' || :id), :payload, :priority, :now, :available_at, :retry_of)
