"""One loss a file; `base.py` is the contract."""
