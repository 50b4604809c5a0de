"""What the screen costs the answers, measured: `python -m devtools.screen_cost`."""
