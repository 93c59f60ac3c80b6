"""Compiles the console's templates when imported, in the process that servers start from."""

from petstore_server.console.rendering import compile_templates

compile_templates()
