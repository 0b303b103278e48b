"""Construction of trainers: what goes wrong in an ``__init__``, and what it leaves as the train op."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from tpk.errors import ConfigError, MissingAttributeError, TpkError, TrainerStateError

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

T = TypeVar("T")


class TrainerType(abc.ABCMeta):
    """The class of the classes of trainers: it makes them.

    Raises:
        ConfigError: if a trainer is given a `TrainConfig`.
        MissingAttributeError, TrainerStateError: if its ``__init__`` does not call ``super().__init__()``, or makes ops
            where TensorFlow executes them at once.
    """

    def __call__(cls: type[T], *args: Any, **options: Any) -> T:
        """Make a trainer."""
        cls.check_arguments([*args, *options.values()])  # type: ignore[attr-defined]
        try:
            trainer: T = super().__call__(*args, **options)  # type: ignore[misc]
        except TpkError:
            raise
        except AttributeError as error:
            made = getattr(error, "obj", None)
            if isinstance(made, cls) and not _is_initialized(made):
                raise _not_initialized(cls, f"no {error.name!r} yet") from error
            _explain_eager_op(cls, error)
            raise
        except Exception as error:
            _explain_eager_op(cls, error)
            raise
        if not _is_initialized(trainer):
            raise _not_initialized(cls, "no graph, no hooks and no progress")
        return trainer

    def check_arguments(cls, arguments: Sequence[Any]) -> None:
        """Raise a `ConfigError` if a trainer is given a configuration; trainers that take one override it."""
        # By name, because the module of the configuration imports that of the trainer.
        if any("TrainConfig" in [base.__name__ for base in type(each).__mro__] for each in arguments):
            raise ConfigError(
                f"{cls.__name__} takes no TrainConfig; a config and a trainer meet in the launcher. Write "
                f"tpk.launch_train_with_config(config, {cls.__name__}())."
            )

    @property
    def __signature__(cls) -> inspect.Signature:
        """What the constructor takes."""
        function = inspect.signature(cls.__init__)  # type: ignore[misc]
        return function.replace(parameters=list(function.parameters.values())[1:])


def check_train_ops(trainer: TrainerProtocol) -> None:
    """Check that what a trainer runs in a step can be run in its graph.

    Raises:
        TrainerStateError: if it is none of that graph; it says what it is, and where it belongs.
    """
    for train_op in trainer.train_ops:
        for leaf in tf.nest.flatten(train_op):
            problem = _problem_of(leaf, trainer.graph)
            if problem:
                raise TrainerStateError(f"the train_op of {type(trainer).__name__} is {problem}")


def _problem_of(fetch: Any, graph: Any) -> str | None:
    where = "Make it, and the variables that it needs, under `with self.graph.as_default():`."
    tensor = getattr(fetch, "handle", fetch)
    if isinstance(tensor, tf.Tensor) and not tf.is_symbolic_tensor(tensor):
        return f"{type(fetch).__name__} that TensorFlow has executed already, outside of the trainer's graph. {where}"
    if callable(fetch) and not isinstance(fetch, tf.Tensor | tf.Variable):
        return f"the function {fetch!r}; expected an op or tensors. Override run_step() to call a function."
    own = getattr(fetch, "graph", graph)
    if own is not graph:
        return f"{getattr(fetch, 'name', fetch)!r} of another graph than the trainer's. {where}"
    try:
        graph.as_graph_element(fetch)
    except TypeError:
        return f"{fetch!r}; expected an op or tensors of its graph, or names of such."
    except (ValueError, KeyError) as error:
        return f"{fetch!r}, which its graph does not have: {error}"
    return None


def _is_initialized(trainer: object) -> bool:
    return "hooks" in vars(trainer)


def _not_initialized(cls: type, has: str) -> MissingAttributeError:
    function = cls.__init__.__qualname__.rpartition("<locals>.")[2]  # type: ignore[misc]
    return MissingAttributeError(
        f"the {cls.__name__} has {has}, because {function} does not call super().__init__() first. Make that its first "
        "line."
    )


def _explain_eager_op(cls: type, error: Exception) -> None:
    """Raise what says where ops belong, if `error` came of one that was made outside of a graph."""
    if tf.executing_eagerly() and "eager execution" in str(error):
        raise TrainerStateError(
            f"{cls.__name__}.__init__ makes ops outside of the trainer's graph, where TensorFlow executes them at once "
            f"({error}) Put them under `with self.graph.as_default():`."
        ) from error
