"""Data sets, each in a file of its own or with others of its kind."""
