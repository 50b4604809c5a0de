"""What is kept on disk: where it is, the database of chats, export and import."""
