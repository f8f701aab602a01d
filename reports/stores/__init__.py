"""The MLflow store that a report is made of."""
