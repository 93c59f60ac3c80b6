"""Version 2 of the API: filtered pages, single orders, placing orders, usage (D20)."""
