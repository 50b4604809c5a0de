"""Expert activation matrices: how many tokens of a request each expert of each layer got, and what is read off them.

After "MoE-Infinity: Sparsity-Aware Expert Cache" (arXiv, version 3), sections on expert activation matrices,
prefetching and caching. Pure: no tensors, no I/O, no clock.
"""
