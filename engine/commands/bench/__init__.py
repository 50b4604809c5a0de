"""Benches: variants interleaved in one run, compared by the median of their ratios."""
