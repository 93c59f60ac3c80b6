"""The groups of checks: each module has `checks`, which yields one coroutine for each check and seed."""
