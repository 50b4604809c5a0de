"""Measurements of answers and of the engine, and the snapshots that the panels read."""
