"""The commands that run without the screen, one a file."""
