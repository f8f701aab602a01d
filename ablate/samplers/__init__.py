"""Search spaces with conditional branches, and the samplers that propose points of them."""
