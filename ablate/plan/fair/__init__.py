"""Whether a comparison is fair: who tuned a row, in which regime, and where the rule is broken."""
