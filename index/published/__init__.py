"""What the engines of the papers share."""
