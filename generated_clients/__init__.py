"""`make test-clients`: what generators make of the contracts is compiled and calls a server, in seven languages."""
