"""Use cases of operators: what the command line, the sample data and the operator console do with a store.

A store and a time are passed in. Nothing here parses arguments or prints; only the health checks use files and ports.
"""
