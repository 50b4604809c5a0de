"""The engine: a transformers MoE model with its routed experts offloaded, decoding in a process of its own."""
