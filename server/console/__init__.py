"""The console: web pages for users, based on the public HTTP API."""
