"""Benches: ratios measured in one run, variants interleaved, medians quoted."""
