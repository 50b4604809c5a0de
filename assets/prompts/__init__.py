"""One JSONL file of prompts per domain: what a profile of that domain is built from unless the user brings others."""
