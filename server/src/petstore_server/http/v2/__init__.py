"""Version 2 of the interface: filtered pages, single orders, placing orders, usage (D20)."""
