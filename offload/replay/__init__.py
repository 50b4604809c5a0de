"""Recorded routing, and what policies would have done on it: traces, bounds, sweeps, profiles, tuning."""
