"""The HTML page and the text of a report."""
