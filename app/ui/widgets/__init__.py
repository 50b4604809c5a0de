"""Small widgets, each showing one thing."""
