-- Version 8: a transaction that has locked `order_changes_head` can choose the time of its change.
--
-- It knows the time before it writes, and so needs no round trip to find out. The setting `petstore.change_at` has the
-- time in Unix microseconds, for this transaction. Without it, as in earlier releases, the clock is read.
CREATE OR REPLACE FUNCTION petstore.log_order_changes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed_ids bigint[];
    new_change bigint;
    new_at bigint;
BEGIN
    SELECT array_agg(id) INTO changed_ids FROM changed_orders;
    IF changed_ids IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE petstore.order_changes_head
    SET change = change + 1, at = greatest(at + 1, coalesce(
        nullif(current_setting('petstore.change_at', true), '')::bigint,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    ))
    RETURNING change, at INTO new_change, new_at;
    INSERT INTO petstore.order_changes (change, at, ids) VALUES (new_change, new_at, changed_ids);
    RETURN NULL;
END $$;
