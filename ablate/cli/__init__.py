"""The command line: main, what commands share, and a module for each command."""
