"""What the doctor finds out about machine, link and model."""
