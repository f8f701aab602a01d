"""`ablate new`: a spec to begin with, from a few options or questions."""
