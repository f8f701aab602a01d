"""What a free worker is given, and who may give it: claims, the queue, settings, equal errors."""
