"""Rate limiting. The adapters count atomically; the domain decides what the counts mean."""
