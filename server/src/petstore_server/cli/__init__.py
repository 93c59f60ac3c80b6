"""The operators' command line: commands and their output, nothing else."""
