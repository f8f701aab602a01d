"""Storage that outlives a machine: files, copies of the ledger, checkpoints of trials."""
