"""Chats in the files that other chat programs export, one program a file."""
