"""Version 2 of the API: a module for each subject, with its operations and routes (D20)."""
