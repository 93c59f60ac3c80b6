"""Import of files: reading CSV, JSON and JSON Lines, checking the rows, and storing them batch after batch."""
