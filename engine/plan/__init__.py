"""The byte budget, and what this machine has: memory, cores, threads."""
