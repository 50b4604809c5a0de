"""Files kept per model (domain profiles, tuned eviction weights), and the prompts that they are made from."""
