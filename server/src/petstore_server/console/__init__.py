"""The operator console: a web page on the admin port, rendered on the server, without scripts."""
