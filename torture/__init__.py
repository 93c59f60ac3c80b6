"""Checks that try to break the service: power, faults, overload, resources, time. Not part of the distributions."""
