"""Tools for developers: measurements and pictures of the app. Not part of the program."""
