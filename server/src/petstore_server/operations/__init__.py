"""Use cases of operators: what the command line, the sample data and the operator console do with a store.

A store and a time are passed in. No module here parses arguments, prints or speaks HTTP. Only
the health checks look at files, and ask the admin port whether the server is ready.
"""
