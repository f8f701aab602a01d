"""The methods, one per file; `base.py` is the contract."""
