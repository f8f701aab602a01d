"""Search spaces, the samplers that propose points of them, and schedulers that end cells early."""
