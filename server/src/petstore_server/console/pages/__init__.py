"""The pages of the console: each module shows one subject and offers its actions."""
