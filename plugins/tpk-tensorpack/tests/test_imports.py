"""What is imported in a script that was written for tensorpack, and what elsewhere."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
import traceback

import numpy
import pytest
import tensorflow
import tpk_tensorpack
from tpk_tensorpack import numpy1, tensorflow1
from tpk_tensorpack.runner.imports import RewritingFinder, compiled, replacement


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs source as a script in a directory of its own, and returns its names."""
    finder = RewritingFinder([tmp_path])
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)

    def run(source):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(source))
        names = {"__name__": "__main__", "__file__": str(path)}
        exec(compiled(path.read_text(), str(path)), names)
        return names

    yield run
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in sys.modules[name].__file__:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tensorpack", "tpk_tensorpack"),
        ("tensorpack.dataflow.imgaug", "tpk_tensorpack.dataflow.imgaug"),
        ("tensorflow", "tpk_tensorpack.tensorflow1"),
        ("tensorflow.compat.v1", "tpk_tensorpack.tensorflow1"),
        ("tensorflow.compat", "tpk_tensorpack.tensorflow1.compat"),
        ("tensorflow.contrib.slim", "tpk_tensorpack.tensorflow1.contrib.slim"),
        ("tensorflow.python.ops", None),
        ("tensorflow.keras.layers", "tensorflow.keras.layers"),
        ("tensorflow.python.keras.layers", "tensorflow.keras.layers"),
        ("tensorflow.compat.v1.keras", "tensorflow.keras"),
        ("numpy", "tpk_tensorpack.numpy1"),
        ("numpy.random", None),
        ("numpydoc", None),
        ("tensorflow_probability", None),
    ],
)
def test_what_stands_for_a_module(name, expected):
    assert replacement(name) == expected


def test_all_forms_of_an_import_bind_what_they_would(run):
    names = run(
        """
        import tensorflow
        import tensorflow as tf
        import tensorflow.compat.v1 as tfv1
        from tensorflow.compat import v1
        import numpy.random
        import numpy as np, os.path as p

        def later():
            import tensorpack
            return tensorpack
        """
    )
    for name in ("tensorflow", "tf", "tfv1", "v1"):
        assert names[name] is tensorflow1
    assert names["numpy"] is names["np"] is numpy1
    assert names["np"].random is numpy.random
    assert names["later"]() is tpk_tensorpack
    assert names["p"].join("a", "b") == "a/b"


def test_modules_beside_the_script_are_rewritten_and_others_are_not(run, tmp_path):
    (tmp_path / "beside_the_script").mkdir()
    (tmp_path / "beside_the_script" / "__init__.py").write_text("from .inner import np, tf\n")
    (tmp_path / "beside_the_script" / "inner.py").write_text("import numpy as np\nimport tensorflow as tf\n")
    names = run("from beside_the_script import np, tf\nimport tpk.layers")
    assert names["tf"] is tensorflow1
    assert names["np"] is numpy1
    assert sys.modules["tensorflow"] is tensorflow
    assert sys.modules["numpy"] is numpy
    assert not list(tmp_path.rglob("*.pyc"))


def test_source_and_tracebacks_are_those_of_the_file(run):
    names = run(
        """
        import tensorflow.contrib.framework as framework, numpy.linalg, os

        def fails():
            raise ValueError("on line 5")
        """
    )
    assert inspect.getsource(names["fails"]).startswith("def fails():")
    with pytest.raises(ValueError, match="on line 5") as caught:
        names["fails"]()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 5


def test_the_first_statement_may_be_a_docstring_and_a_future(run):
    names = run('"""What it does."""\nfrom __future__ import division, print_function\nimport tensorflow as tf\n')
    assert names["__doc__"] == "What it does."
    assert names["tf"] is tensorflow1


@pytest.mark.parametrize("name", ["tensorpack.dataflow", "tensorflow.contrib.slim"])
def test_an_import_through_a_string_is_an_error_that_says_what_to_write(run, name):
    package = name.rpartition(".")[0]
    with pytest.raises(ImportError, match=f"line 3: '{package}' is imported through a string.*'tpk_tensorpack"):
        run(f"import importlib\n\nimportlib.import_module({name!r})")


def test_a_module_elsewhere_that_imports_tensorpack_is_told_of(run):
    with pytest.raises(ModuleNotFoundError, match=r"not below the directory of the script.*--also DIRECTORY"):
        importlib.import_module("tensorpack")


def test_numpy_has_the_aliases_of_its_past():
    assert numpy1.float is float
    assert numpy1.zeros(2, numpy1.bool).dtype == bool
    assert numpy1.float_ is numpy.float64
    assert -numpy.inf == numpy1.NINF
    assert numpy1.product([2, 3]) == 6
    assert numpy1.asfarray([1, 2]).dtype == numpy.float64
    with pytest.raises(AttributeError, match="nothing_like_this"):
        numpy1.nothing_like_this  # noqa: B018


def test_tensorflow_has_the_names_and_meanings_of_its_past():
    assert tensorflow1.placeholder is tensorflow.compat.v1.placeholder
    assert tensorflow1.summary is tensorflow.compat.v1.summary
    assert tensorflow1.compat.v1 is tensorflow1
    assert tensorflow1.TensorSpec is tensorflow.TensorSpec
    with pytest.raises(AttributeError, match=r"no tf.placeholdr,.*the nearest that there is: tf.placeholder"):
        tensorflow1.placeholdr  # noqa: B018
