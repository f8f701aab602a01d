"""Statistics of a table, as pure functions: nothing here reads runs or draws.

Functions that draw random numbers take a seed. Values that are not finite are left out, and an
answer that the data cannot give is None, never a guess; each docstring says when.
"""
