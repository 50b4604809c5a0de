"""Expert residency: slots, the link, the cache, and the policies that decide. Knows no transformers and no engine."""
