"""MLflow as a replica of the ledger, written by one process of its own."""
