"""Options of pytest that run some of the cases of each test. Packages get them with ``-p case_selection``."""

import itertools

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--cases-of-each",
        type=int,
        metavar="N",
        help="of each parametrized test run N cases at most: for a further version of what is tested",
    )
    parser.addoption(
        "--each-choice",
        action="store_true",
        help="of each test with several parameters run as many cases as it takes that each value of each one occurs",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    most = config.getoption("cases_of_each")
    if config.getoption("each_choice") or most is not None:
        cases = {}
        for item in items:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
        kept = {case for each in cases.values() for case in each_choice(each)[:most]}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def each_choice(cases):
    """Return some of the cases of a test, the first one first: together they have each value of each parameter.

    Next comes the case with the most values that there were not yet; of several, that with the most pairs of values.
    """
    if not all(hasattr(case, "callspec") for case in cases):
        return cases
    # Values need not be hashable, and those of stacked decorators are the same objects.
    values = {case: {(name, id(value)) for name, value in case.callspec.params.items()} for case in cases}
    pairs = {case: set(itertools.combinations(sorted(values[case]), 2)) for case in cases}
    chosen, seen, seen_pairs = [], set(), set()
    while any(values[case] - seen for case in cases):
        best = max(cases, key=lambda case: (len(values[case] - seen), len(pairs[case] - seen_pairs)))
        chosen.append(best)
        seen |= values[best]
        seen_pairs |= pairs[best]
    return chosen
