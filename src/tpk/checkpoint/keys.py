"""Names for the parts of a training state that stay theirs when others are added, removed or reordered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any


def state_keys(owners: Iterable[Any]) -> list[str]:
    """Return a unique key for each of `owners`.

    It is the name of the class and the attribute `state_key`, if there is one: what tells the owner from others of its
    class, such as the name of the hyperparameter that it sets. Those that are equal in that are numbered.

    Example:
        ```python
        state_keys([saver, lr_setter, other_saver])
        # ["ModelSaver", "ScheduledHyperParamSetter(learning_rate)", "ModelSaver#2"]
        ```
    """
    seen: Counter[str] = Counter()
    keys = []
    for owner in owners:
        detail = getattr(owner, "state_key", "")
        key = f"{type(owner).__name__}({detail})" if detail else type(owner).__name__
        seen[key] += 1
        keys.append(key if seen[key] == 1 else f"{key}#{seen[key]}")
    return keys
