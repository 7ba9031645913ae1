"""Tests that measure time, on machines that others use too."""

import functools

#: What is wrong is wrong each time; what somebody else's load spoils once is not.
TRIES = 3


def measured(test):
    """Fails only if the test fails each time. What it starts must have ended by then, and what it makes must not be in its own way."""

    @functools.wraps(test)
    def tried(*arguments, **named):
        for left in reversed(range(TRIES)):
            try:
                return test(*arguments, **named)
            except AssertionError:
                if not left:
                    raise

    return tried
