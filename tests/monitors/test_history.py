from __future__ import annotations

import json
import math

import pytest

from tpk.checkpoint.encoding import decode, encode
from tpk.errors import TpkError
from tpk.monitors.history import ScalarHistory, UnknownScalarError


@pytest.fixture
def history():
    history = ScalarHistory()
    history.add("cost", 10, 0.5)
    history.add("error", 10, 1)
    history.add("cost", 20, math.inf)
    return history


def test_every_value_is_kept_with_its_step(history):
    assert history.names == ["cost", "error"]
    assert history.of("cost") == [(10, 0.5), (20, math.inf)]
    assert history.latest("cost") == math.inf
    assert history.latest("error") == 1.0


def test_an_unknown_name_is_a_key_error_that_lists_the_known_ones(history):
    with pytest.raises(UnknownScalarError) as caught:
        history.latest("eror")
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, TpkError)
    message = "no scalar 'eror' was reported so far. Did you mean 'error'? Reported so far: cost, error."
    assert str(caught.value) == message
    with pytest.raises(UnknownScalarError, match="Reported so far: none"):
        ScalarHistory().of("cost")


def test_it_survives_a_restart_through_json(history):
    history.add("cost", 30, 0.1)
    resumed = ScalarHistory()
    resumed.load_state_dict(decode(json.loads(json.dumps(encode(history.state_dict()), allow_nan=False))))
    resumed.add("cost", 40, 0.05)
    assert resumed.of("cost") == [(10, 0.5), (20, math.inf), (30, 0.1), (40, 0.05)]
    assert resumed.of("error") == [(10, 1.0)]
