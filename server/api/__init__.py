"""The HTTP routes, one module per resource. A route reads the request, calls the broker and writes the answer."""
