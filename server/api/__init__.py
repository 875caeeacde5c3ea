"""The routes, one file a resource. Thin: each reads a request, asks the broker, and writes the answer."""
