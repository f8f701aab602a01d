"""Compare sweeps, and summarize several of them."""
