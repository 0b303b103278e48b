"""Configuration of predictions: the graph, the values of variables, inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import tensorflow as tf

import tpk.predict
from tpk.checkpoint import ChainInit, SessionInit
from tpk.graph.variables import variable_name
from tpk.tower import TowerFunc
from tpk_tensorpack.utils import logger

__all__ = ["PredictConfig"]


@attrs.frozen(eq=False, init=False, kw_only=True)
class PredictConfig(tpk.predict.PredictConfig):
    """How to predict with a trained model. Variables without a value are initialized.

    Args:
        model: a `ModelDesc`.
        tower_func: a function of the input tensors that builds the model, instead of `model`.
        input_signature: a `tf.TensorSpec` for each argument of `tower_func`; a `TowerFunc` has its own.
        input_names: the names of the tensors to feed; by default all inputs.
        output_names: the names of the tensors to return.
        session_creator: creates the session; by default a new one.
        session_init: the values of variables.
        return_input: whether predictors return a pair of their inputs and outputs.
        create_graph: whether to build the model in a new graph instead of the default graph.
        device: see `tpk.PredictConfig`.
        precision: see `tpk.PredictConfig`.

    Raises:
        ConfigError: an argument is invalid; the message names it.

    Example:
        ```python
        config = PredictConfig(
            model=Model(), session_init=SmartInit("train_log/checkpoint"), input_names=["image"], output_names=["prob"]
        )
        (prob,) = OfflinePredictor(config)(image[None])
        ```
    """

    return_input: bool = False
    create_graph: bool = True

    def __init__(
        self,
        model: Any = None,
        tower_func: Callable[..., Any] | None = None,
        input_signature: Sequence[Any] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        session_creator: Any = None,
        session_init: Any = None,
        return_input: bool = False,
        create_graph: bool = True,
        *,
        device: str | None = None,
        precision: str = "float32",
    ) -> None:
        if isinstance(tower_func, TowerFunc) and input_signature is None:
            input_signature = tower_func.input_signature
        if input_names is None:
            signature = model.get_input_signature() if hasattr(model, "get_input_signature") else input_signature
            input_names = [spec.name for spec in signature or ()] or None
        self.__attrs_init__(  # type: ignore[attr-defined]
            model=model,
            tower_func=tower_func,
            input_signature=input_signature,
            session_init=_with_initial_values(session_init),
            input_names=input_names,
            output_names=output_names,
            session_creator=session_creator,
            device=device,
            precision=precision,
            return_input=return_input,
            create_graph=create_graph,
        )

    def make_graph(self) -> Any:
        """Return the graph for the model: a new one or the default one."""
        return tf.Graph() if self.create_graph else tf.compat.v1.get_default_graph()


class _InitialValues(SessionInit):
    """Initialize the variables that have no value yet."""

    def run(self, sess: Any) -> None:
        graph = sess.graph
        with graph.as_default(), tf.name_scope("has_value"):
            variables = tf.compat.v1.global_variables()
            has_value = sess.run([tf.compat.v1.is_variable_initialized(variable) for variable in variables])
        missing = [variable for variable, has in zip(variables, has_value, strict=True) if not has]
        if missing:
            names = ", ".join(sorted(map(variable_name, missing)))
            logger.warning("no values for these variables, so they keep their initial values: %s", names)
            sess.run([variable.initializer for variable in missing])


def _with_initial_values(session_init: Any) -> ChainInit:
    if isinstance(session_init, ChainInit) and any(isinstance(each, _InitialValues) for each in session_init.inits):
        return session_init
    given = None if isinstance(session_init, str) and not session_init else session_init
    return ChainInit([tpk.SmartInit(given, must_match=False), _InitialValues()])
