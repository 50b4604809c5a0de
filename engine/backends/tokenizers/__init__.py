"""Tokenizers that are made without the model library: of GGUF files."""
