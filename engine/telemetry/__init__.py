"""What is measured of an answer and of the engine, and the snapshot the panels read."""
