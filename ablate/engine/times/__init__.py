"""How long trials take, and how long what is left may."""
