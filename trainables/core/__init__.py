"""The shared training core: one exact trial, from its configuration to its export."""
