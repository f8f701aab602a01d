"""Where the jobs of a sweep run: this process, a file of trials, Slurm, Ray."""
