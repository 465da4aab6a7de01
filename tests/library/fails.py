"""What python_api.py and wheel.py share: a call that fails."""

import calm_ptq


def fails(status, words, call, *arguments, **named):
    """call(...) raises CalmError of that status, and its message has the words."""
    try:
        call(*arguments, **named)
    except calm_ptq.CalmError as error:
        assert error.status == status and words in str(error), (error.status, str(error))
        return
    raise AssertionError(f"{call}: no failure")
