"""What the panels remember of the engine's states, apart from how it is drawn."""
