"""Pure decisions: eviction, prefetch, substitution, slot planning. No tensors, no I/O, no clock of their own."""
