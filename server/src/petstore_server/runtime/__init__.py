"""The running service: composition, servers, workers, background tasks."""
