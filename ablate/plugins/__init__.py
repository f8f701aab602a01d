"""Plug-ins that this package brings along. The rest of the package names none of them."""
