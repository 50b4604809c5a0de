"""Commands without a screen, one a file."""
