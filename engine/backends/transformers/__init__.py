"""The transformers back end: loading without routed experts, the KV cache, the decode loop."""
