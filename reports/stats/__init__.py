"""Statistics of a table, as pure functions: nothing here reads runs or makes figures.

Functions that use random numbers use the fixed seed 0. Values that are not finite are left out, and
an answer that the data cannot give is None, never a guess; each docstring says when.
"""
