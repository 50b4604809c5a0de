"""One TOML file per domain: title, purpose, system prompt, place in the menu."""
