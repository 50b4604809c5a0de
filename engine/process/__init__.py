"""The engine's own process: commands in, events and snapshots out, and the session that answers."""
