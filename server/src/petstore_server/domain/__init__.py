"""What the store knows of its business: pure functions and values, no clock, no input or output."""
