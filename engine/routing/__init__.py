"""What routers do, recorded and put to use: traces, replays, domain profiles, tuned eviction."""
