"""The Pet Store Orders service: list all orders, cancel an order; keys with plans, limits and bans."""

__version__ = "1.0.0"
