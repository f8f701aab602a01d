"""Trials that leave the driver as a file, and come back as facts."""
