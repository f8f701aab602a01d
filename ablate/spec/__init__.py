"""YAML → a checked model, with the place of every fault; the JSON Schema."""
