"""Commands that plan and run sweeps, here or as a file for another machine."""
