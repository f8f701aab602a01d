"""Numbers that papers print, one YAML file a paper; `papers.py` reads them."""
