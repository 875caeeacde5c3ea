"""Code that the engines of the papers share."""
