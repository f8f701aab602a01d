"""Tables: the recipe and the frame become rows of measured, published and compared numbers."""
