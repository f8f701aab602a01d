"""What ends cells early: one scheduler a file, and races over seeds."""
