"""From messages to token ids and back: templates, thinking, streamed text."""
