"""CSV, JSON and JSON Lines in and out."""
