"""A fixed sample of PyTorch's own samples of modules and optimisers; `python run_program.py modules.py` runs all of them."""

import modules

#: Every so many, and those that once were wrong.
EVERY = 9
ALWAYS = {"MultiLabelMarginLoss"}


def test_modules_and_optimisers_do_what_they_do_on_the_processor():
    counted, wrong = 0, []
    for at, (name, check) in enumerate(modules.checks()):
        if at % EVERY == 0 or name in ALWAYS:
            count, problems = check()
            counted += count
            wrong += problems
    assert counted > 300
    assert not wrong, "\n".join(wrong)
