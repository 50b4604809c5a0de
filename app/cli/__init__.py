"""The command line: its arguments, and every command that runs without the screen."""
