"""A driver while it runs: what asks it to stop, and what it tells of itself."""
