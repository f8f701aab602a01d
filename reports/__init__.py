"""Reports: MLflow runs become tables, figures and one page. `compile_report` is the way in.

Importing this package imports neither MLflow nor matplotlib; the first call does.
"""
