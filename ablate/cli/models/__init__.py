"""Commands about networks: backbones, and models that trials have left."""
