"""The Textual interface: the app, its screens, widgets and styles."""
