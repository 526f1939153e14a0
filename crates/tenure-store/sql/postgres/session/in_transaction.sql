-- in_transaction: tells whether an earlier message has begun a transaction.
-- Parameters: none; it is sent as a simple query, which is safe on every session.
-- Returns: whether it has.
-- Keeps: without a transaction, this statement's begins with the statement.
-- Relies on: nothing.
select now() <> statement_timestamp() as is_begun
