"""The expert cache: which expert is in which slot, and every change of that."""
