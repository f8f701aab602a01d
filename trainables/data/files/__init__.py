"""Read data sets that are lists of image files: location, rows, hashes, pixels."""
