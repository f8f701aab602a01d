"""Compare two sweeps."""
