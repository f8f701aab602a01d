"""Run Ray in a process of its own: session, resources, Tune, and its supervisor."""
