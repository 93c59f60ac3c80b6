"""Where everything durable is kept: the adapters that fulfil `ports.Store`."""
