"""How a model predicts: its graph, where its values are, what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import tensorflow as tf

import tpk.predict
from tpk.checkpoint import ChainInit, SessionInit
from tpk.checkpoint.session_init import as_session_init
from tpk.graph.variables import variable_name
from tpk.tower import TowerFunc
from tpk_tensorpack.utils import logger

__all__ = ["PredictConfig"]


@attrs.frozen(eq=False, init=False, kw_only=True)
class PredictConfig(tpk.predict.PredictConfig):
    """How a model predicts, once it is trained. Variables for which there is no value keep their initial ones.

    Args:
        model: a `ModelDesc`.
        tower_func: in place of a model, a function of the input tensors that builds it.
        input_signature: a `tf.TensorSpec` for each argument of `tower_func`; that of a `TowerFunc` is its own.
        input_names: names of the tensors that are fed; by default all in the signature.
        output_names: names of the tensors that are returned.
        session_creator: where the session comes from; by default a new one.
        session_init: where the values of variables are.
        return_input: whether predictors return the pair of their inputs and the outputs.
        create_graph: whether there is a graph for the model; else it is built in the default graph.
        device: see `tpk.PredictConfig`.
        precision: see there.

    Raises:
        ConfigError: an argument is not one of these; it names it.

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
        """Return the graph in which the model is built: a new one, or the default one."""
        return tf.Graph() if self.create_graph else tf.compat.v1.get_default_graph()


class _InitialValues(SessionInit):
    """Gives the variables that have no value yet their initial ones."""

    def run(self, sess: Any) -> None:
        graph = sess.graph
        with graph.as_default(), tf.name_scope("has_value"):
            variables = tf.compat.v1.global_variables()
            has_value = sess.run([tf.compat.v1.is_variable_initialized(variable) for variable in variables])
        missing = [variable for variable, has in zip(variables, has_value, strict=True) if not has]
        if missing:
            names = ", ".join(sorted(map(variable_name, missing)))
            logger.warning("there is no value for these variables, so they have their initial ones: %s", names)
            sess.run([variable.initializer for variable in missing])


def _with_initial_values(session_init: Any) -> ChainInit:
    if isinstance(session_init, ChainInit) and any(isinstance(each, _InitialValues) for each in session_init.inits):
        return session_init
    given = None if isinstance(session_init, str) and not session_init else session_init
    return ChainInit([as_session_init(given, must_match=False), _InitialValues()])
