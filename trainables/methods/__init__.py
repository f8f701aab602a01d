"""One method a file; `base.py` is the contract."""
