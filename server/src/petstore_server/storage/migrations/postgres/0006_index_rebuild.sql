-- Version 6: after a large import into a small store, the search index is rebuilt instead of updated row by row.
--
-- While it is being rebuilt, `copied` is the last change whose orders were copied into `order_index`, and indexes are
-- missing; `change` stays as it was until all of them are there again. NULL otherwise.
ALTER TABLE petstore.order_index_state ADD COLUMN copied bigint;

-- Drop the indexes of `order_index` except for its primary key. Returns whether that was possible: it is not while
-- another program reads the table for long, nor for a user who does not own it.
CREATE FUNCTION petstore.drop_order_index_indexes() RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    name text;
BEGIN
    FOR name IN
        SELECT indexname FROM pg_indexes
        WHERE schemaname = 'petstore' AND tablename = 'order_index' AND indexname <> 'order_index_pkey'
    LOOP
        EXECUTE format('DROP INDEX petstore.%I', name);
    END LOOP;
    RETURN true;
EXCEPTION WHEN lock_not_available OR insufficient_privilege THEN
    RETURN false;
END $$;
