"""Check that losses, methods, designs, data sets and samplers satisfy their interfaces.

The checks raise an AssertionError. This project's tests call them for each of its components, and
tests of other packages can call them for theirs. They do not need pytest.
"""
