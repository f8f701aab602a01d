"""What every loss, method, design, data set and sampler must do: functions that raise an
AssertionError.

They are what the tests of this project call for each component of its own; whoever writes one in
another package calls them from tests there. None of them needs pytest.
"""
