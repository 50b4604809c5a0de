"""What runs a model: one folder a back end, and the offloaded model put together on it."""
