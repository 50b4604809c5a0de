"""The terminal chat app and its command line. Talks to the engine only through `engine.client` and its light values."""
