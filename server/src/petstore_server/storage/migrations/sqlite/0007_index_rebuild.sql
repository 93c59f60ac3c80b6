-- Version 7: after a large import into a small store, the search index is rebuilt instead of updated row by row.
--
-- While it is being rebuilt, `copied` is the last change whose orders were copied into `order_index`, and indexes are
-- missing; `change` stays as it was until all of them are there again. NULL otherwise.
ALTER TABLE order_index_state ADD COLUMN copied INTEGER;
