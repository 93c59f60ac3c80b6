"""The engines of the store: SQLite and PostgreSQL. Each implements `store.engine.Engine`."""
