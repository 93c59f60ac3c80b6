"""Version 1 of the API: its operations and its routes."""

from petstore_server.api.v1.routes import routes

__all__ = ["routes"]
