from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.graph import freeze_collection

v1 = tf.compat.v1


def test_what_is_added_to_a_frozen_collection_does_not_last():
    with tf.Graph().as_default():
        v1.add_to_collection("frozen", "before")
        with pytest.raises(ValueError, match="mine"), freeze_collection(["frozen", "new"]):
            for key in ("frozen", "new", "free"):
                v1.add_to_collection(key, "inside")
            assert v1.get_collection("frozen") == ["before", "inside"]
            raise ValueError("mine")
        assert v1.get_collection("frozen") == ["before"]
        assert v1.get_collection("new") == []
        assert v1.get_collection("free") == ["inside"]
