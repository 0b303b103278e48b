"""Tests for plugin authors: checks of the rules that tpk's own plugins keep, and pytest fixtures.

```python
from tpk.testing import check_callback, check_monitor, check_strategy, check_trainer

def test_keeps_the_rules_of_strategies():
    check_strategy(lambda: MyStrategy(towers=2), num_towers=2)
```

- `check_callback`, `check_monitor`, `check_strategy` and `check_trainer` train a tiny model with the plugins that a
  function makes, in this process, in a few seconds. The first broken rule raises a `ConformanceError`, which says what
  was expected, what was found, and where to read about it. They do not need pytest.
- The fixtures are in `tpk.testing.fixtures`. Load this room in a ``conftest.py``, or in the test module if it is the
  only one, and ask for the fixtures by name:

```python
pytest_plugins = ["tpk.testing"]

def test_my_callback(run_steps):
    callback = MyCallback()
    trainer = run_steps(callback, 3)
    assert callback.number_of_steps == 3
    assert trainer.monitors.get_latest("my-statistic") == 7
```
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
