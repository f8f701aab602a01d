"""The losses, one per file; `base.py` is the contract."""
