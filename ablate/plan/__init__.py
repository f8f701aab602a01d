"""Spec → cells: the plan, its checks and identity, what is inherited, what a reader is told."""
