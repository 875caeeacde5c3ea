"""The console: pages for people, over the same HTTP API that everybody uses."""
