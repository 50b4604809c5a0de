"""Files the program carries with it: domain prompts, themes, and the plan the demo model is carved by."""
