"""The command line: its parser, and a folder for each group of commands."""
