"""Define the sections of a trial's configuration and the registries of its components."""
