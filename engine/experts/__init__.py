"""One MoE layer's experts at work: decode, prefill, what a slot's bytes mean, and the parts put together."""
