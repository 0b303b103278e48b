from __future__ import annotations

import re

import pytest
from tpk_distributed import (
    CollectiveStrategy,
    DistributedParameterServerStrategy,
    DistributedReplicatedStrategy,
)

import tpk

CLUSTER = {
    "cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"], "ps": ["127.0.0.1:3"]},
    "task": {"type": "worker", "index": 0},
}
STRATEGIES = [CollectiveStrategy, DistributedReplicatedStrategy, DistributedParameterServerStrategy]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("option", ["start", "heartbeat", "late_warning", "barrier"])
@pytest.mark.parametrize("value", [0, -1.0, "60", True])
def test_an_invalid_timeout_is_an_error_that_names_it(strategy, option, value):
    with pytest.raises(
        tpk.ConfigError, match=re.escape(f"Timeouts({option}={value!r}): expected a positive number of seconds")
    ):
        strategy(cluster=CLUSTER, timeouts={option: value})
