"""The distributed builders, which are not supported; the distributed trainers are."""

from __future__ import annotations

from tpk_tensorpack.missing import not_here

__all__: list[str] = []

__getattr__ = not_here(
    __name__,
    {
        "DistributedBuilderBase": "the class Trainer, or one of the trainers DistributedTrainer…",
        "DistributedParameterServerBuilder": "DistributedTrainerParameterServer(gpus, server)",
        "DistributedReplicatedBuilder": "DistributedTrainerReplicated(gpus, server)",
    },
)
