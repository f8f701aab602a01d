"""The designs of studies, their base, and the parts of which they are made."""
