"""The two data sets that ship with the package; see ATTRIBUTION.md beside this file."""
