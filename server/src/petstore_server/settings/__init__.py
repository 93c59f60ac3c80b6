"""The settings: environment variables, read and checked when a process starts."""

from petstore_server.settings.table import SETTINGS, Settings, SettingsError, read_settings
from petstore_server.settings.values import UNPARSABLE_URL, Network, describe_url

__all__ = ["SETTINGS", "UNPARSABLE_URL", "Network", "Settings", "SettingsError", "describe_url", "read_settings"]
