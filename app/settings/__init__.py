"""Settings, options and actions: tables that screens, help and commands read."""
