"""Metrics of embeddings; the compiled code loads only for sets that need it."""
