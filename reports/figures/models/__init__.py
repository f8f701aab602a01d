"""Figures of trained models, from what was read of them once (`Frame.view`)."""
