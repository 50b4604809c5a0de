"""Colour themes of the app, one TOML file each: Textual's base colours, and variables of our own."""
