"""What can be typed: the parser and its options; light, so that `--help` is quick."""
