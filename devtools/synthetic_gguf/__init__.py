"""Writes a GGUF of a known model's sizes with made-up weights, for benches: `python -m devtools.synthetic_gguf`.

The weights mean nothing. Sizes, types and layout are a real file's, and routing is as skewed and as correlated from
token to token as that of trained models (see `routing`), so that an offload engine and its peers have a real file's
work to do.
"""
