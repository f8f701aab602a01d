"""A list of trials without a driver: `python -m trainables.jobs.batch cells.jsonl --out DIR`."""
