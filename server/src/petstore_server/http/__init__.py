"""The interface over HTTP: what a request is, who may make it, and how every response looks."""
