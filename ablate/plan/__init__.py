"""Turn a spec into a plan: cells, identities, inherited values, checks and warnings."""
