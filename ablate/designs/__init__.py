"""One design a file, and their base; `study.py` is the union of them."""
