"""The demo model: a real one, carved into experts on this machine."""
