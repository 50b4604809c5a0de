"""The link to the engine's process, without the screen."""
