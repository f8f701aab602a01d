"""What a worker does with the core: jobs, pilots, ensembles, and the Ray trainable."""
