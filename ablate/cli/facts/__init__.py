"""Commands that tell what an output folder knows, and keep it in order."""
