"""Proof of exactness on the loaded model, against the unmodified library and against the files."""
