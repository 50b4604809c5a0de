"""What can be typed on the command line, as a parser. Light, so that `--help` is quick."""
