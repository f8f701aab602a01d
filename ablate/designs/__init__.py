"""The designs, one per file, and their base; `study.py` is the union of them."""
