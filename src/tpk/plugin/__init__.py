"""Plugins: how to write one, how to ship one, and what calls them.

**A callback** is a class with a method for each moment of a training that it wants to be part of. It needs no
decorator and no registration; give an instance of it to the trainer:

```python
import tpk

class CostCurve(tpk.Callback):
    def __init__(self, tensor_name="cost"):
        self.tensor_name = tensor_name
        self.costs = []

    def setup_graph(self, trainer):
        self.cost = tpk.find_tensor(trainer, self.tensor_name)

    def before_run(self, run_context):
        return self.cost                       # runs along with the step, in the same Session.run

    def after_run(self, run_context, run_values):
        self.costs.append(run_values.results)

    def trigger(self, trainer):                # at the end of each epoch, or when `PeriodicTrigger` says
        trainer.monitors.put_scalar("lowest-cost", min(self.costs))
```

The hooks, with arguments and examples, are methods of `Callback`; when they are called is drawn in `tpk.train.loop`;
what a plugin may use of a trainer is in `tpk.plugin.trainer`. What holds for all of them:

- A method may leave out arguments (``def before_run(self)``). It cannot have others, nor any with a default.
- The order of the list is the order of the calls. ``@tpk.hookimpl(tryfirst=True)`` and ``trylast=True`` put a
  method before or after all the others; so mark `trylast` whatever reads statistics that others write.
  Methods that override such a method inherit the mark.
- ``@tpk.hookimpl(wrapper=True)`` around a generator method runs it around all the others. The hooks of the step
  (`before_run`, `after_run`, `trigger_step`) and `after_train` cannot be wrapped.
- ``raise tpk.StopTraining("why")`` ends the training in good order: all others are still called at that moment, and a
  checkpoint of the last step is left where there is a saver. Only in ``before_run`` it ends it before that step.
- What an error was raised in is noted in the error: ``in callback 'CostCurve#2', hook 'after_run'``.
- A name that is nearly that of a hook is an error, so that ``befor_run`` is not lost; so are the names that other
  frameworks have (``on_epoch_end``), and a callback that implements nothing.
- ``translate_error`` and ``recover`` are asked when something has failed, and end at the first answer.
- A callback that wraps another one overrides `hook_implementations`, and returns those of what it wraps, as they are
  or wrapped with `functools.wraps`; `order_of` tells what place in the order they have. If it was given the other one
  by name, it turns that into a plugin in `resolve_plugins`, not before.
- A callback that changes how long a training is, or where it keeps its files, overrides `configure_run`.

**Monitors and strategies** are callbacks of another kind: `tpk.Monitor` takes reports (``process_scalar`` and the like)
besides, `tpk.Strategy` builds the towers, and both may implement any hook. A monitor that fails is logged, and stops
nothing; it goes into ``monitors``, and a strategy is given to a trainer. A trainer (`tpk.Trainer`) is no callback: it
has phases that can be overridden, and no hooks.

**A name for it.** Wherever a plugin is expected, these may stand: an instance, a class that needs no
arguments, a name, ``"module:attr"``, or `use(name, **options)`. A name is given by an entry point; installing
the package then makes the plugin available, and a script that names it makes it active:

```toml
[project.entry-points."tpk.callbacks"]      # or tpk.monitors, tpk.strategies, tpk.trainers
cost-curve = "cost_curve:CostCurve"         # a class or a factory
```

```python
callbacks = [tpk.use("cost-curve", tensor_name="total_cost")]
```

What a constructor is given stands in ``config.json`` of the run, in few words; the value of an
argument that is called ``…key``, ``…token``, ``…secret``, ``…password`` or ``…credentials`` does not. It stands in
``config.toml``, too, in a form from which the plugin can be made again (`tpk.plugin.description`): numbers, texts,
lists, mappings, importable functions and classes, and objects that are made of such.

What a plugin logs goes into ``log.txt`` of the run, and to the terminal, if its logger is below tpk's:
``logging.getLogger(f"tpk.{__name__}")``.

**Always active** are the modules in the group ``tpk.plugins``, and those that ``TPK_PLUGINS`` names. Their
hooks are functions decorated by `hookimpl`; besides those of a training they may implement
``tpk_configure(config)`` and ``tpk_default_callbacks(config)``:

```python
@tpk.hookimpl
def tpk_default_callbacks(config):
    return [tpk.use("cost-curve")]
```

**Tools.** ``tpk plugins`` lists what is installed, ``--check`` finds slips in it without a training, ``tpk plugins new
NAME`` writes a package to start from (``--kind`` callback, monitor, strategy or trainer). `tpk.testing` checks by one
line, such as ``check_callback(lambda: CostCurve())``, that a plugin keeps the rules that tpk's own ones keep, and has
pytest fixtures to test it with. `tpk.plugin.environment` lists the environment variables that block, add and trace
plugins.

**Hooks of your own.** Such a module may add hooks, by ``tpk_add_hookspecs(hooks)``; callbacks then implement them, and
whoever has a trainer calls them, by ``trainer.hooks.hook.<name>(...)``.

**Inside.** A process has one `Catalog`, which knows what names stand for. A trainer has one `HookManager`, its
registry: the strategy, each monitor and each callback are in it under unique names, and each is called by the hooks
that it implements, whatever its kind. The hooks of a step are compiled into `StepHooks`.
"""

from __future__ import annotations

import pluggy

from tpk.plugin.base import Plugin
from tpk.plugin.callback import HOOK_NAMES as HOOK_NAMES, Callback
from tpk.plugin.catalog import Catalog, get_catalog, use_catalog
from tpk.plugin.creation import Use, use
from tpk.plugin.implementations import order_of
from tpk.plugin.manager import HookManager
from tpk.plugin.progress import Progress
from tpk.plugin.spec import hookspec
from tpk.plugin.step import StepHooks
from tpk.plugin.trainer import TowerTrainerProtocol, TrainerProtocol

__all__ = [
    "Callback",
    "Catalog",
    "HookManager",
    "Plugin",
    "Progress",
    "StepHooks",
    "TowerTrainerProtocol",
    "TrainerProtocol",
    "Use",
    "get_catalog",
    "hookimpl",
    "hookspec",
    "order_of",
    "use",
    "use_catalog",
]

hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker("tpk")
"""Marks a hook implementation: a function of a module; a method to be called first, last or around others."""
