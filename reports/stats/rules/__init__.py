"""Rules of comparison, one file each."""
