"""Durable facts in SQLite, the only place with SQL."""
