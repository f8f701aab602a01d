"""Run a plan: checks before it, the driver around one `Tuner.fit`, and the progress display."""
