"""How a sweep unfolds by its results, up to the next job of a free worker."""
