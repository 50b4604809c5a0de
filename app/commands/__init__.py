"""What a user can do, declared once, and slash commands as they are typed."""
