"""Settings, actions and keys: tables that screens, help and commands read."""
