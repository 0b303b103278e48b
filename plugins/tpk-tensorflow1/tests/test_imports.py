"""Imports of a script are replaced; imports of other modules are left alone."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import textwrap
import traceback

import numpy
import pytest
import tensorflow
import tpk_tensorflow1
from tpk_tensorflow1.older import numpy as numpy1
from tpk_tensorflow1.runner.failures import explain_missing_name
from tpk_tensorflow1.runner.imports import RewritingFinder, compiled, replacement

OTHERS = {"oldlib": "json"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs source code as a script in a new directory and returns its names."""
    directory = tmp_path / "scripts"
    directory.mkdir()
    finder = RewritingFinder([directory], OTHERS)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.syspath_prepend(directory)
    known = set(sys.modules)

    def run(source):
        path = directory / "script.py"
        path.write_text(textwrap.dedent(source))
        names = {"__name__": "__main__", "__file__": str(path)}
        exec(compiled(path.read_text(), str(path), OTHERS), names)
        return names

    yield run
    for name in set(sys.modules) - known:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("oldlib", "json"),
        ("oldlib.decoder", "json.decoder"),
        ("tensorflow", "tpk_tensorflow1"),
        ("tensorflow.compat.v1", "tpk_tensorflow1"),
        ("tensorflow.compat", "tpk_tensorflow1.compat"),
        ("tensorflow.contrib.slim", "tpk_tensorflow1.contrib.slim"),
        ("tensorflow.contrib.framework.python.ops.arg_scope", "tpk_tensorflow1.contrib.framework"),
        ("tensorflow.contrib.framework.python.ops.audio_ops", "tensorflow.python.ops.gen_audio_ops"),
        ("tensorflow.contrib.metrics.python.ops.set_ops", "tpk_tensorflow1.contrib.metrics"),
        ("tensorflow.contrib.slim.python.slim.nets.vgg", "tpk_tensorflow1.contrib.slim.nets.vgg"),
        ("tensorflow.contrib.keras.layers", "tensorflow.keras.layers"),
        ("tensorflow.contrib.hooks", "tensorflow.python.training.basic_session_run_hooks"),
        ("tensorflow.train", "tpk_tensorflow1.train"),
        ("tensorflow.python.layers.core", "tpk_tensorflow1.layers"),
        ("tensorflow.python.ops.rnn_cell_impl", "tpk_tensorflow1.rnn_cell"),
        ("tensorflow.python.ops", None),
        ("tensorflow.core.framework.graph_pb2", None),
        ("tensorflow.keras.layers", "tensorflow.keras.layers"),
        ("tensorflow.python.keras.layers", "tensorflow.keras.layers"),
        ("tensorflow.compat.v1.keras", "tensorflow.keras"),
        ("numpy", "tpk_tensorflow1.older.numpy"),
        ("numpy.random", None),
        ("numpy.lib", "tpk_tensorflow1.older.numpy.lib"),
        ("numpy.lib.stride_tricks", None),
        ("numpydoc", None),
        ("collections", "tpk_tensorflow1.older.collections"),
        ("collections.abc", None),
        ("imp", "tpk_tensorflow1.older.imp"),
        ("scipy.misc", "tpk_tensorflow1.older.scipy.misc"),
        ("scipy.sparse.csr", "scipy.sparse"),
        ("scipy.sparse.linalg.eigen.arpack", "scipy.sparse.linalg"),
        ("sklearn.cross_validation", "sklearn.model_selection"),
        ("os.path", None),
        ("tensorflow_probability", None),
    ],
)
def test_the_replacement_of_a_module(name, expected):
    assert replacement(name, OTHERS) == expected


def test_all_forms_of_an_import_bind_the_usual_names(run):
    names = run(
        """
        import tensorflow
        import tensorflow as tf
        import tensorflow.compat.v1 as tfv1
        from tensorflow.compat import v1
        import numpy.random
        import numpy as np, os.path as p

        def later():
            import oldlib.decoder
            return oldlib
        """
    )
    for name in ("tensorflow", "tf", "tfv1", "v1"):
        assert names[name] is tpk_tensorflow1
    assert names["numpy"] is names["np"] is numpy1
    assert names["np"].random is numpy.random
    assert names["later"]() is importlib.import_module("json")
    assert names["p"].join("a", "b") == "a/b"


def test_the_files_of_tensorflow_have_the_names_that_have_moved_since(run):
    names = run(
        """
        import tensorflow as tf
        from tensorflow import pywrap_tensorflow
        from tensorflow.python import pywrap_tensorflow as of_python
        from tensorflow.python.framework import dtypes, graph_util as gu, ops
        from tensorflow.python.framework.graph_util import convert_variables_to_constants
        from tensorflow.python.layers.utils import smart_cond
        from tensorflow.contrib.seq2seq.python.ops.decoder import _transpose_batch_time
        from tensorflow.python.layers import base
        from tensorflow.python.ops import control_flow_ops, rnn_cell
        from tensorflow.python.ops.rnn_cell_impl import _concat, assert_like_rnncell
        from tensorflow.python.training import training_ops
        from tensorflow.python.util import nest
        from tensorflow.python.util.nest import is_sequence
        """
    )
    v1 = tensorflow.compat.v1
    assert names["is_sequence"] is names["nest"].is_sequence is names["tf"].contrib.framework.nest.is_sequence
    assert [names["is_sequence"](each) for each in ([1], {"a": 1}, "text", numpy.ones(2))] == [True, True, False, False]
    assert names["nest"].flatten({"b": [1, 2], "a": 3}) == [3, 1, 2]
    for module in (names["pywrap_tensorflow"], names["of_python"], names["tf"].pywrap_tensorflow):
        assert module.NewCheckpointReader is v1.train.NewCheckpointReader
    assert names["gu"].convert_variables_to_constants is v1.graph_util.convert_variables_to_constants
    assert names["convert_variables_to_constants"] is v1.graph_util.convert_variables_to_constants
    assert (names["ops"].Tensor, names["ops"].IndexedSlices) == (tensorflow.Tensor, tensorflow.IndexedSlices)
    assert names["ops"].RegisterGradient is tensorflow.RegisterGradient
    assert names["control_flow_ops"].cond is v1.cond
    assert callable(names["control_flow_ops"].with_dependencies)
    assert callable(names["smart_cond"])
    assert names["rnn_cell"].GRUCell is tpk_tensorflow1.nn.rnn_cell.GRUCell
    assert names["_concat"](2, 3, static=True) == tensorflow.TensorShape([2, 3])
    with pytest.raises(TypeError, match="output_size"):
        names["assert_like_rnncell"]("cell", "not a cell")
    assert names["base"].InputSpec(ndim=2).ndim == 2
    assert callable(names["training_ops"].apply_adam)
    assert names["_transpose_batch_time"](tensorflow.zeros([2, 3, 4])).shape == [3, 2, 4]
    assert names["dtypes"].float32 is tensorflow.float32


def test_the_files_of_tensorflow_lead_to_the_public_modules(run):
    names = run(
        """
        from tensorflow.contrib.framework.python.ops import arg_scope, variables
        from tensorflow.contrib.framework.python.ops.arg_scope import add_arg_scope
        from tensorflow.contrib.layers.python.layers import initializers, layers as layers_lib, utils
        from tensorflow.python.layers import core as layers_core
        from tensorflow.train import AdamOptimizer
        from tensorflow.contrib.learn.python.learn.preprocessing.text import VocabularyProcessor
        from tensorflow.contrib.rnn.python.ops import rnn_cell_impl
        from tensorflow.contrib.staging import StagingArea
        from tensorflow.contrib.util import make_ndarray, make_tensor_proto
        import tensorflow.contrib.layers.python.layers as a
        import tensorflow.contrib.lite as lite
        import tensorflow.losses
        """
    )
    contrib = tpk_tensorflow1.contrib
    assert names["arg_scope"] is contrib.framework.arg_scope
    assert names["add_arg_scope"] is contrib.framework.add_arg_scope
    assert names["variables"].model_variable is contrib.framework.model_variable
    assert names["initializers"].xavier_initializer is contrib.layers.xavier_initializer
    assert names["layers_lib"].conv2d is names["a"].conv2d is contrib.layers.conv2d
    assert callable(names["lite"].TFLiteConverter)
    assert names["layers_core"].Dense is tpk_tensorflow1.layers.Dense
    assert names["VocabularyProcessor"] is contrib.learn.preprocessing.VocabularyProcessor
    assert names["rnn_cell_impl"].GRUCell is contrib.rnn.GRUCell
    assert names["StagingArea"]([tensorflow.int32]).dtypes == [tensorflow.int32]
    assert names["make_ndarray"](names["make_tensor_proto"]([3, 4])).tolist() == [3, 4]
    assert names["AdamOptimizer"] is tensorflow.compat.v1.train.AdamOptimizer
    assert names["tensorflow"].losses is tensorflow.compat.v1.losses


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("from tensorflow.contrib import eager", "tf.contrib.eager is not available .*: use TensorFlow 2"),
        ("import tensorflow.contrib.eager as tfe", "tf.contrib.eager is not available .*: use TensorFlow 2"),
        ("from tensorflow.contrib.eager.python import tfe", "tf.contrib.eager is not available .*: use TensorFlow 2"),
        (
            "from tensorflow.contrib.nn import alpha_dropout",
            "tf.contrib.nn is not available .*: use tf.nn, .*no equivalent",
        ),
        ("from tensorflow.contrib.opt import AdamWOptimizer", "contrib.opt.AdamWOptimizer .*: use tf.train.Adam"),
        ("from tensorflow.contrib.layers import conv2dd", "contrib.layers.conv2dd .*Nearest: 'conv2d'"),
        ("from tensorflow.contrib.layers.python.layers import nothing", "contrib.layers.nothing .*TF1 programs"),
        ("from tensorflow.nn import reluu", "tf.nn.reluu .*Nearest: 'relu'"),
        (
            "from tensorflow.estimator import BoostedTreesClassifier",
            "tf.estimator.Boosted.* tensorflow_decision_forests",
        ),
        ("from tensorflow import placeholdr", "tf.placeholdr .*Nearest: 'placeholder'"),
    ],
)
def test_an_import_of_a_missing_name_is_an_error_that_says_what_replaces_it(run, statement, message):
    with pytest.raises(ImportError, match=message) as caught:
        run(statement)
    assert "pip install" not in str(caught.value)


def test_modules_beside_the_script_are_rewritten_and_others_are_not(run, tmp_path):
    package = tmp_path / "scripts" / "beside_the_script"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import np, tf\n")
    (package / "inner.py").write_text("import numpy as np\nimport tensorflow as tf\n")
    names = run("from beside_the_script import np, tf\nimport tpk.layers")
    assert names["tf"] is tpk_tensorflow1
    assert names["np"] is numpy1
    assert sys.modules["tensorflow"] is tensorflow
    assert sys.modules["numpy"] is numpy
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_module_that_is_a_link_to_another_directory_is_rewritten(run, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "linked_module.py").write_text("import tensorflow as tf\n")
    (tmp_path / "scripts" / "linked_module.py").symlink_to(tmp_path / "shared" / "linked_module.py")
    assert run("from linked_module import tf")["tf"] is tpk_tensorflow1


def test_source_and_tracebacks_match_the_file(run):
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
    names = run('"""A docstring."""\nfrom __future__ import division, print_function\nimport tensorflow as tf\n')
    assert names["__doc__"] == "A docstring."
    assert names["tf"] is tpk_tensorflow1


@pytest.mark.parametrize(
    ("name", "package", "new"),
    [
        ("oldlib.decoder", "oldlib", "json"),
        ("tensorflow.contrib.slim", "tensorflow.contrib", "tpk_tensorflow1.contrib"),
    ],
)
def test_an_import_by_a_string_is_an_error_that_says_what_to_write(run, name, package, new):
    with pytest.raises(ImportError, match=f"line 3: '{package}' is imported by its name as a string.*'{new}"):
        run(f"import importlib\n\nimportlib.import_module({name!r})")


def test_a_string_that_mock_patches_is_an_error_that_says_what_to_write(run):
    with pytest.raises(ImportError, match=r"line 3: 'oldlib' is imported by its name as a string.*'json'"):
        run("from unittest import mock\n\nmock.patch('oldlib.dumps').start()")


def test_a_module_elsewhere_that_imports_a_replaced_package_is_an_error_that_says_what_to_do(run):
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'oldlib', which .* imports\..*pass its directory"):
        importlib.import_module("oldlib")


@pytest.mark.skipif(importlib.util.find_spec("tensorpack") is not None, reason="tensorpack itself is installed")
def test_a_script_for_tensorpack_is_told_which_package_runs_it(run):
    with pytest.raises(ModuleNotFoundError, match="python -m tpk_tensorpack"):
        run("import tensorpack")


def test_a_copy_of_tensorpack_beside_the_script_is_a_module_of_the_script(run, tmp_path):
    (tmp_path / "scripts" / "tensorpack.py").write_text("import tensorflow as tf\n")
    assert run("import tensorpack")["tensorpack"].tf is tpk_tensorflow1


def test_tensorflow_names_have_their_old_meanings():
    assert tpk_tensorflow1.placeholder is tensorflow.compat.v1.placeholder
    assert tpk_tensorflow1.summary is tensorflow.compat.v1.summary
    assert tpk_tensorflow1.compat.v1 is tpk_tensorflow1
    assert tpk_tensorflow1.TensorSpec is tensorflow.TensorSpec
    assert tpk_tensorflow1.__version__ == tensorflow.__version__
    with pytest.raises(AttributeError, match=r"tf.placeholdr is not available on.*Nearest: 'placeholder'"):
        tpk_tensorflow1.placeholdr  # noqa: B018


@pytest.mark.parametrize(
    "line",
    [
        'print "cost", cost',
        "print >>log % 3, 1 2",
        "exec code in names",
        "raise ValueError, 'wrong'",
        "x = 0777",
        "x = 10L",
        "x = `y`",
        "if x <> y: pass",
        "x = ur'text'",
    ],
)
def test_an_error_names_the_file_that_is_written_for_python_2(line):
    with pytest.raises(SyntaxError, match=r"^old\.py, line 2, is written for Python 2\. .*2to3 -w old\.py"):
        compiled(f"x = 1\n{line}\n", "old.py")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 accepts it")
def test_an_except_clause_of_python_2_is_named():
    with pytest.raises(SyntaxError, match="line 3, is written for Python 2"):
        compiled("try:\n    x = 1\nexcept ValueError, error:\n    pass\n", "old.py")


@pytest.mark.parametrize("line", ["xrange(3)", "{}.iteritems()", "{}.has_key(1)", "'text'.decode('utf-8')"])
def test_an_error_at_run_time_says_that_a_name_is_of_python_2(run, line):
    with pytest.raises((NameError, AttributeError)) as caught:
        run(f"def function():\n    {line}\n\nfunction()\n")
    explain_missing_name(caught.value)
    assert re.search(r"script\.py, line 2, is written for Python 2\. .*2to3 -w ", str(caught.value))


@pytest.mark.parametrize("line", ["xrang(3)", "[].has_key(1)", "tf.decode"])
def test_an_error_about_another_name_is_left_as_it_is(run, line):
    with pytest.raises((NameError, AttributeError)) as caught:
        run(f"import tensorflow as tf\n{line}\n")
    explain_missing_name(caught.value)
    assert "Python 2" not in str(caught.value)


@pytest.mark.parametrize("line", ["x = (1", "print(1 2)", "def f(:", "except (A, B) as error:"])
def test_another_syntax_error_is_left_as_it_is(line):
    with pytest.raises(SyntaxError) as caught:
        compiled(f"{line}\n", "wrong.py")
    assert "Python 2" not in str(caught.value)


def test_int_and_float_take_an_array_with_one_element(run):
    names = run(
        """
        '''A docstring.'''
        from __future__ import print_function
        import numpy as np

        whole, real = int(np.array([3])), float(np.array([[0.5]]))
        others = int("7"), int(2.5), float(np.float32(2)), int("ff", 16), isinstance(3, int)
        try:
            int(np.array([1, 2]))
        except TypeError as error:
            refused = error
        """
    )
    assert (names["whole"], names["real"]) == (3, 0.5)
    assert names["others"] == (7, 2, 2.0, 255, True)
    assert "refused" in names
    assert names["__doc__"] == "A docstring."


def test_a_module_of_conversions_only_is_compiled(run):
    run("int(str(3))")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of NumPy 1.26
def test_numbers_in_a_text_may_be_arrays_with_one_element(run):
    names = run(
        """
        import numpy as np

        one = "cost %.2f" % np.array([0.25])
        several = "%s: %d of %d" % (np.array([1, 2]), np.array([[3]]), 4)
        whole = "%s" % np.array([1])
        by_name = "%(x)d" % {"x": 3}
        """
    )
    assert (names["one"], names["several"]) == ("cost 0.25", "[1 2]: 3 of 4")
    assert (names["whole"], names["by_name"]) == ("[1]", "3")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of NumPy 1.26
def test_methods_that_have_been_removed_are_found(run):
    names = run(
        """
        import threading
        import xml.etree.ElementTree as ET
        import numpy as np

        class Own:
            def tostring(self):
                return "own"

        numbers = np.array([[1, 5], [2, 9]], np.uint8)
        bytes_of, of_scalar, own = numbers.tostring(), np.float32(0).tostring(), Own().tostring()
        ranges = numbers.ptp(axis=0).tolist(), numbers.ptp()
        tree = ET.fromstring("<boxes><box/><box/></boxes>")
        text, children = ET.tostring(tree), tree.getchildren()
        alive = threading.current_thread().isAlive()
        try:
            "text".tostring()
        except AttributeError as error:
            refused = str(error)
        """
    )
    assert (names["bytes_of"], names["of_scalar"], names["own"]) == (b"\1\5\2\x09", bytes(4), "own")
    assert names["ranges"] == ([1, 4], 8)
    assert names["text"] == b"<boxes><box /><box /></boxes>"
    assert [child.tag for child in names["children"]] == ["box", "box"]
    assert names["alive"] is True
    assert names["refused"] == "'str' object has no attribute 'tostring'"


def test_attributes_that_have_been_removed_are_found(run):
    names = run(
        """
        import numpy as np
        import scipy.sparse as sp
        from PIL import Image

        class Own:
            A = 3

        dense, own = sp.eye(2, format="csr").A, Own().A
        small = np.array(Image.new("L", (8, 8), 7).resize((1, 2), Image.ANTIALIAS))
        try:
            np.ones(1).A
        except AttributeError as error:
            refused = str(error)
        """
    )
    assert (names["dense"].tolist(), names["own"]) == ([[1, 0], [0, 1]], 3)
    assert names["small"].tolist() == [[7], [7]]
    assert names["refused"] == "'numpy.ndarray' object has no attribute 'A'"


def test_a_module_that_is_loaded_from_a_path_is_rewritten(run, tmp_path):
    (tmp_path / "scripts" / "settings.py").write_text("import tensorflow as tf\n")
    (tmp_path / "scripts" / "plugin").mkdir()
    (tmp_path / "scripts" / "plugin" / "__init__.py").write_text("import numpy as np\n")
    names = run(
        f"""
        import imp

        settings = imp.load_source("settings_of_run", {str(tmp_path / "scripts" / "settings.py")!r})
        found = imp.find_module("settings", [{str(tmp_path / "scripts")!r}])
        again = imp.load_module("settings_again", *found)
        found[0].close()
        plugin = imp.load_module("plugin", *imp.find_module("plugin", [{str(tmp_path / "scripts")!r}]))
        try:
            imp.find_module("nothing", [{str(tmp_path / "scripts")!r}])
        except ImportError as error:
            missing = error.name
        """
    )
    assert names["settings"].tf is names["again"].tf is tpk_tensorflow1
    assert names["plugin"].np is numpy1
    assert names["missing"] == "nothing"


ESTIMATOR_IMPORTS = [
    "from tensorflow.estimator import RunConfig",
    "from tensorflow.compat.v1.estimator import RunConfig",
    "from tensorflow.python.estimator.run_config import RunConfig",
    "from tensorflow.contrib.estimator import RunConfig",
    "from tensorflow.contrib.learn import RunConfig",
]


@pytest.mark.parametrize("statement", ESTIMATOR_IMPORTS)
def test_names_of_estimator_are_in_another_package(run, statement):
    estimator = pytest.importorskip("tpk_estimator")
    assert run(statement)["RunConfig"] is estimator.RunConfig


@pytest.mark.parametrize(
    ("module", "name"), [("estimator", "Estimator"), ("contrib.tpu", "TPUEstimator"), ("contrib.learn", "RunConfig")]
)
def test_without_that_package_the_error_names_it(monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, "tpk_estimator", None)
    monkeypatch.setitem(sys.modules, "tpk_estimator.tpu", None)
    spec = importlib.util.find_spec(f"tpk_tensorflow1.{module}")
    imported_without = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(imported_without)
    own = getattr(tensorflow.compat.v1, module, None)
    if own is not None:  # TensorFlow 2.15 has `tf.estimator` itself.
        assert getattr(imported_without, name) is getattr(own, name)
        return
    with pytest.raises(AttributeError, match=r"pip install 'tpk-tensorflow1\[estimator\]'"):
        getattr(imported_without, name)


def test_a_package_of_tpk_beside_a_script_is_left_alone(run, tmp_path):
    package = tmp_path / "scripts" / "tpk_beside"
    package.mkdir()
    (package / "__init__.py").write_text("import tensorflow")
    names = run("import tensorflow as tf, tpk_beside; is_replaced = tf is tpk_beside.tensorflow")
    assert not names["is_replaced"]
