"""Write a report as HTML, Markdown, LaTeX, CSV and plain text."""
