"""Where requests are counted. The adapters count atomically; the domain judges what the counts mean."""
