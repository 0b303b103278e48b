from __future__ import annotations

from tpk.monitors import Monitors
from tpk.plugin import HookManager


class RegisteredMonitors(Monitors):
    """Monitors as a trainer has them: each is registered with a hook manager, which calls its hooks."""

    def __init__(self, trainer, *monitors, **options):
        super().__init__(trainer, monitors, **options)
        trainer.monitors = self
        self.hooks = HookManager()
        self.hooks.register_all(self.monitors)
        for monitor in monitors:
            monitor.trainer = trainer

    def call(self, hook):
        """Call a hook that takes the trainer."""
        if hook == "after_train":
            assert self.hooks.after_train(self.trainer) == []
        else:
            getattr(self.hooks.hook, hook)(trainer=self.trainer)
