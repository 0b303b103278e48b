"""pytest fixtures for plugin authors.

- `run_steps` trains a tiny model with one or more callbacks, and returns the trainer.
- `hook_recorder` makes callbacks that record which hooks are called, and when.
- `isolated_catalog` hides all installed plugins, and all ``TPK_`` environment variables.
- `fake_distribution` adds a distribution with entry points and modules that looks installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tpk.plugin import Callback, Catalog, use_catalog
from tpk.plugin.callback import HOOK_NAMES
from tpk.plugin.environment import VARIABLES

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer


class HookRecorder(Callback):
    """A callback that records every hook call.

    Args:
        fetches: the names of tensors to fetch in each step.

    Attributes:
        calls: the name of the hook, `epoch_num` and `local_step` of each call.
        results: the values of the fetches in each step.
    """

    def __init__(self, fetches: Sequence[str] = ()) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.results: list[list[Any]] = []
        self._names = list(fetches)

    @property
    def hooks(self) -> list[str]:
        """The names of the hooks in `calls`."""
        return [hook for hook, _, _ in self.calls]

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return an implementation of each hook of callbacks."""
        hooks = {hook: self._recording(hook) for hook in HOOK_NAMES}
        return {**hooks, "before_run": self._ask, "after_run": self._take}

    def _recording(self, hook: str) -> Callable[[], None]:
        def record() -> None:
            self.calls.append((hook, self.epoch_num, self.local_step))

        return record

    def _ask(self) -> list[Any]:
        self._recording("before_run")()
        return [self.trainer.graph.get_tensor_by_name(name) for name in self._names]

    def _take(self, run_values: Any) -> None:
        self._recording("after_run")()
        self.results.append(run_values.results)


@pytest.fixture
def hook_recorder() -> type[HookRecorder]:
    """Return `HookRecorder`, to be called with the names of tensors to fetch, if any."""
    return HookRecorder


@pytest.fixture
def run_steps() -> Callable[..., Trainer]:
    """Return a function that trains a tiny model with callbacks and returns the trainer.

    It takes a callback or a list of them, in any form that a trainer takes; the number of steps per epoch; and, by
    keyword, `epochs`, `monitors` and `run_dir`. The model has one variable ``w``, initially 0, and a tensor ``cost:0``,
    which is ``(w - 1)²``.
    """
    return _run_steps


@pytest.fixture
def isolated_catalog(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """Replace the catalog of this process by one that has only the built-in plugins and fake distributions."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    site = tmp_path_factory.mktemp("site-packages")
    monkeypatch.syspath_prepend(str(site))
    modules = set(sys.modules)
    with use_catalog(Catalog(path=[str(site)])) as catalog:
        yield catalog
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(site)):
            del sys.modules[name]


@pytest.fixture
def fake_distribution(isolated_catalog: Catalog) -> Callable[..., None]:
    """Return a function that adds a distribution to `isolated_catalog`.

    It takes the name and version of the distribution; `entry_points`, a mapping of group to name to target; and
    `modules`, a mapping of module name to source code.

    Example:
        ```python
        def test_is_found_by_name(fake_distribution, run_steps):
            fake_distribution(
                "tpk-hello",
                entry_points={"tpk.callbacks": {"hello": "hello:Hello"}},
                modules={"hello": "import tpk\\nclass Hello(tpk.Callback): ..."},
            )
            run_steps("hello", 1)
        ```
    """
    (site,) = isolated_catalog.path or ()

    def add(
        name: str,
        version: str = "1.0",
        *,
        entry_points: Mapping[str, Mapping[str, str]] | None = None,
        modules: Mapping[str, str] | None = None,
    ) -> None:
        metadata = Path(site) / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text(_ini(entry_points or {}))
        for module, source in (modules or {}).items():
            (Path(site) / f"{module}.py").write_text(source)
        isolated_catalog.refresh()

    return add


def _ini(entry_points: Mapping[str, Mapping[str, str]]) -> str:
    lines = []
    for group, targets in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in targets.items()), ""]
    return "\n".join(lines)


def _run_steps(
    callbacks: Any, steps: int = 3, *, epochs: int = 1, monitors: Sequence[Any] = (), run_dir: Path | None = None
) -> Trainer:
    import tensorflow as tf

    from tpk.train.trainer import Trainer

    class TinyTrainer(Trainer):
        def __init__(self) -> None:
            super().__init__()
            with self.graph.as_default():
                w = tf.compat.v1.get_variable("w", [], initializer=tf.compat.v1.zeros_initializer())
                cost = tf.square(w - 1.0, name="cost")
                self.train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(cost)

    with tf.Graph().as_default():
        trainer = TinyTrainer()
        trainer.train(
            callbacks=callbacks if isinstance(callbacks, (list, tuple)) else [callbacks],
            monitors=monitors,
            run_dir=run_dir,
            steps_per_epoch=steps,
            max_epoch=epochs,
        )
    return trainer
