"""What all packages share: errors, metrics, texts, paths, files, secrets. Imports no torch."""
