"""Boxes of images brought to the size that a network takes: antialiased, or not."""
