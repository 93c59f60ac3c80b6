"""The version of the distribution, and the only place where it stands."""

__version__ = "1.0.0"
