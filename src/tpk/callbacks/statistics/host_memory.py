"""Memory of the host: how much the training uses, and how much is free."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tpk.callbacks.statistics.sampling import SampledStatistics
from tpk.plugin.optional import import_optional

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

_GB = 2**30


class HostMemoryTracker(SampledStatistics):
    """Reports at the end of each epoch the most memory that the training had, and the least that the host had left.

    ``host_memory_gb`` is the resident memory (RSS) of this process and of all that it has started, such as the workers
    of a dataflow, together; pages that several of them share, as batches in shared memory, count in each.
    ``host_memory_free_gb`` is what new processes could have without swapping. Both are in units of 2³⁰ bytes. A
    ``host_memory_gb`` that grows from epoch to epoch is a leak.

    When it runs: a thread measures every `interval` seconds while steps run, and once more at the end of the epoch. It
    costs nothing in steps; a sample looks at all processes of the host, which takes that thread a hundredth of a second
    or so. It works on every strategy; of several processes, the chief measures, its own host.

    It needs psutil.

    Args:
        interval: how many seconds lie between two samples.

    Raises:
        ConfigError: if `interval` is not positive.
        PluginImportError: when the training is set up, if psutil is not installed.

    Example:
        ```python
        callbacks=[tpk.HostMemoryTracker()]
        ```
    """

    def __init__(self, interval: float = 5.0) -> None:
        super().__init__(interval)
        self._psutil: Any = None

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """See whether psutil is there.

        Raises:
            PluginImportError: if it is not.
        """
        self._psutil = import_optional("psutil", "HostMemoryTracker", "psutil")

    def sample(self) -> Mapping[str, float]:
        """Return both numbers as they are now."""
        own = self._psutil.Process(os.getpid())
        used = 0
        for process in (own, *own.children(recursive=True)):
            with suppress(self._psutil.NoSuchProcess, self._psutil.AccessDenied):  # It may just have ended.
                used += process.memory_info().rss
        return {"used": used / _GB, "free": self._psutil.virtual_memory().available / _GB}

    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return the worst of the epoch."""
        return {"host_memory_gb": max(samples["used"]), "host_memory_free_gb": min(samples["free"])}
