"""The interface over HTTP: who may make a request, what it does, and how every response looks."""
