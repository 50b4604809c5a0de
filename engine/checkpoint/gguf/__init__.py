"""GGUF files: what their headers say, checked, and read as typed values. Light: the standard library alone."""
