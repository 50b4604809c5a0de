"""Chats kept: the database, its search, what goes in and out."""
