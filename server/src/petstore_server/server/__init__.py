"""An HTTP/1.1 server: connections, parsing, writing and deadlines. It knows nothing of what it serves."""
