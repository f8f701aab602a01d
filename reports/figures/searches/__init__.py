"""Figures of searches and promotions: how they went, what mattered, what it cost."""
