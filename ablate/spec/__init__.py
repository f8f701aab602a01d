"""Read, validate and check the YAML of a sweep."""
