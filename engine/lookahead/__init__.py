"""Predicting the experts of later layers by their own routers, and what to prefetch."""
