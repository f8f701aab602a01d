"""The driver around one Tuner.fit, with what is asked, checked and shown around it."""
