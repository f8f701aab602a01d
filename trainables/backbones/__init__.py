"""Any timm model: from images to features, with its weights and frozen norms."""
