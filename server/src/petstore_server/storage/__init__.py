"""Durable state: the adapters that implement `ports.Store`."""
