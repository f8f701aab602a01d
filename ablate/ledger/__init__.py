"""Durable facts in SQLite, the only place with SQL: schema, ledger, owner, heartbeat, export."""
