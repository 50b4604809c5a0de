"""`bench peers`: the same GGUF through this engine and through llama.cpp, each run in a process of its own."""
