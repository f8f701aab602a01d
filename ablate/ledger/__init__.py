"""Store results durably in SQLite; all SQL is here."""
