"""How much goes wrong before a trial or a study is left, under a driver and in a batch alike."""

RETRIES = 3  # of a trial that the machine ended
EQUAL_ERRORS = 3  # of configuration in a study, without a success between them: the study stops
