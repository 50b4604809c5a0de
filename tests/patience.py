"""How long tests wait for what must come true. None asks for speed: a shared machine is slow at times."""

PATIENCE_S = 60.0
"""A condition that has not come true by then is a failure."""
GONE_S = 15.0
"""What may pass from the order to end until nothing of a program is left. Its own timers leave it two seconds."""
