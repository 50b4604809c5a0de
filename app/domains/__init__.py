"""What a chat is about: the built-in domains, and the domain profiles that the engine builds."""
