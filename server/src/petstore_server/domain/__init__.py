"""The business rules: pure functions and values; no clock, no input, no output."""
