"""Submit trials to Slurm or to processes of this machine, and follow them (`ablate submit`)."""
