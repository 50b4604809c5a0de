"""Long-running requests: verify, diagnose, plan, bench, record, replay, tune, and building profiles."""
