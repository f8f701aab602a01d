"""MLflow as a replica of the ledger: `sync.py` brings a store up to it."""
