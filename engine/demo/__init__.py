"""The demo model: a small dense model, carved into experts on this machine."""
