"""Run a file of trials without a driver: `python -m trainables.jobs.batch FILE --out DIR`."""
