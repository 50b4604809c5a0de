"""What is recorded and learned of a model, as kept on disk: domain profiles, tuned weights, prompt sets."""
