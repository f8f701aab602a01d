"""Figures of studies that list their cells: over their factors, and of their components."""
