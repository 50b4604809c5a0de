"""Figures, progress and times as text, and text made safe."""
