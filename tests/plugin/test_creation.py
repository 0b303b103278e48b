from __future__ import annotations

import inspect

import attrs
import pytest

import tpk
from tpk.errors import UnknownOptionError
from tpk.plugin.creation import also_spelled, create


@also_spelled({"gpus": "devices"}, use_nccl="write mode='nccl' for it.")
def build(devices=1, mode="auto"):
    return devices, mode


@also_spelled({"gpus": "devices"}, use_nccl="write mode='nccl' for it.")
class Builder:
    def __init__(self, devices=1, mode="auto"):
        self.built = devices, mode


class TestWhatMeansTheSame:
    def test_is_taken(self):
        assert build(gpus=2) == build(devices=2) == (2, "auto")
        assert Builder(gpus=2, mode="copy").built == (2, "copy")

    def test_given_twice_is_an_error(self):
        with pytest.raises(UnknownOptionError, match=r"build\(\) was given devices= and gpus=.*Write devices="):
            build(devices=1, gpus=2)
        with pytest.raises(TypeError, match="devices"):
            build(1, gpus=2)

    def test_is_taken_where_a_plugin_is_named_with_options(self):
        assert create(Builder, {"gpus": 3}, "strategy 'mine'").built == (3, "auto")


class TestWhatIsExplained:
    def test_is_a_type_error_that_says_what_to_write(self):
        with pytest.raises(TypeError, match=r"Builder\(\) takes no use_nccl=: write mode='nccl' for it."):
            Builder(use_nccl=True)

    def test_is_a_configuration_error_too(self):
        with pytest.raises(tpk.ConfigError, match=r"build\(\) takes no use_nccl="):
            build(use_nccl=False)

    def test_names_the_plugin_that_was_given_it(self):
        with pytest.raises(TypeError, match=r"^strategy 'mine' takes no use_nccl=: write mode='nccl'"):
            create(Builder, {"use_nccl": True}, "strategy 'mine'")


def test_a_signature_shows_only_tpks_names():
    assert list(inspect.signature(build).parameters) == ["devices", "mode"]
    assert list(inspect.signature(Builder).parameters) == ["devices", "mode"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        build(other=1)


def test_a_subclass_adds_to_what_it_inherits():
    @also_spelled({"nr_gpu": "devices"})
    class Derived(Builder):
        pass

    assert Derived(nr_gpu=4).built == Derived(gpus=4).built == (4, "auto")
    with pytest.raises(TypeError, match=r"Derived\(\) was given"):
        Derived(nr_gpu=4, devices=2)


def test_an_attrs_class_accepts_other_spellings():
    @also_spelled({"max_epochs": "max_epoch"})
    @attrs.define(kw_only=True)
    class Config:
        max_epoch: int

    assert Config(max_epochs=3) == Config(max_epoch=3)
