"""The ggml back end: known families on the CPU, computed by ggml's kernels through ctypes, from GGUF or safetensors."""
