"""Ray in a process of its own: its session, what it is asked for, Tune, and who watches it."""
