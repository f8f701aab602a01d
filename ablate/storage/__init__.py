"""Storage that outlives a machine: where it is, and the copies of a ledger that are kept there."""
