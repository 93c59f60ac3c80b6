"""Benchmarks of the installed service, driven through its command line and HTTP. Run them with `make bench`."""
