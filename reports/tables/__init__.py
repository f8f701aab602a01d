"""Build tables of measured, published and compared numbers."""
