"""Plugins: how to write them, how to ship them, and how they are called.

**A callback** is a class with a method for each hook that it implements. It needs no decorator and no registration;
pass an instance to the trainer:

```python
import tpk

class CostCurve(tpk.Callback):
    def __init__(self, tensor_name="cost"):
        self.tensor_name = tensor_name
        self.costs = []

    def setup_graph(self, trainer):
        self.cost = tpk.find_tensor(trainer, self.tensor_name)

    def before_run(self, run_context):
        return self.cost                       # runs together with the step, in the same Session.run

    def after_run(self, run_context, run_values):
        self.costs.append(run_values.results)

    def trigger(self, trainer):                # at the end of each epoch, or when `PeriodicTrigger` decides
        trainer.monitors.put_scalar("lowest-cost", min(self.costs))
```

The hooks are methods of `Callback`, with arguments and examples. `tpk.train.loop` shows when they are called. Their
`trainer` is a `tpk.Trainer`. For all of them:

- A method may leave out arguments (``def before_run(self)``). It cannot have others, or defaults.
- Callbacks are called in the order of their list. ``@tpk.hookimpl(tryfirst=True)`` and ``trylast=True`` put a method
  before or after all others; use `trylast` to read statistics that other callbacks report. Overrides of a marked
  method inherit the mark.
- ``@tpk.hookimpl(wrapper=True)`` around a generator method runs it around all other implementations. The hooks of the
  step (`before_run`, `after_run`, `trigger_step`) and `after_train` cannot be wrapped.
- ``raise tpk.StopTraining("why")`` ends the run cleanly: the other callbacks are still called for this hook, and a
  saver writes a checkpoint of the last step. In ``before_run``, the run ends before the step.
- An error gets a note that names its origin: ``in callback 'CostCurve#2', hook 'after_run'``.
- A name that is similar to a hook (``befor_run``) or that is a hook of another framework (``on_epoch_end``) is an
  error, and so is a callback that implements no hook.
- ``translate_error`` and ``recover`` are called after a failure, until a plugin answers.
- A callback that wraps another one overrides `hook_implementations` and returns the hooks of the wrapped callback,
  unchanged or wrapped with `functools.wraps`; `order_of` returns their place in the call order. If it was given the
  name of the other callback, it resolves it in `resolve_plugins`.
- A callback that changes the length or the directory of the run overrides `configure_run`.

**Monitors and strategies** are special callbacks: a `tpk.Monitor` also receives reports (``process_scalar`` and
others), and a `tpk.Strategy` builds the towers. Both may implement any hook. A failing monitor is logged, and does not
stop the run. Monitors belong in ``monitors``; a strategy is an argument of a trainer. A trainer (`tpk.Trainer`) is a
plugin, but not a callback: it has phases that can be overridden, and its methods that are marked with `hookimpl` are
called as hooks.

**Names.** Wherever a plugin is expected, you can pass an instance, a class that needs no arguments, a name,
``"module:attr"``, or `use(name, **options)`. Entry points define names. Installing a package makes its plugins
available; naming them in a script makes them active:

```toml
[project.entry-points."tpk.callbacks"]      # or tpk.monitors, tpk.strategies, tpk.trainers
cost-curve = "cost_curve:CostCurve"         # a class or a factory
```

```python
callbacks = [tpk.use("cost-curve", tensor_name="total_cost")]
```

The arguments of constructors are recorded in ``config.json`` of the run, in short form, and in ``config.toml``, in a
form from which the plugin can be created again (`tpk.plugin.recorded_options`): numbers, text, lists, mappings,
importable functions and classes, and objects made from them. Values of arguments called ``…key``, ``…token``,
``…secret``, ``…password`` or ``…credentials`` are left out.

Log records of a plugin are written to ``log.txt`` of the run and to the terminal if its logger is a child of tpk's:
``logging.getLogger(f"tpk.{__name__}")``.

**Always active** are the modules in the group ``tpk.plugins``, and the modules in ``TPK_PLUGINS``. Their hooks are
functions decorated with `hookimpl`. They may also implement ``tpk_configure(config)`` and
``tpk_default_callbacks(config)``:

```python
@tpk.hookimpl
def tpk_default_callbacks(config):
    return [tpk.use("cost-curve")]
```

**Tools.** ``tpk plugins`` lists the installed plugins; ``tpk plugins --check`` finds mistakes in them without training;
``tpk plugins new NAME`` writes a package to start from. `tpk.testing` checks in one line, such as
``check_callback(lambda: CostCurve())``, that a plugin follows the rules of built-in plugins, and has pytest fixtures.
`tpk.plugin.environment` lists the environment variables that block, add and trace plugins.

**New hooks.** Such a module may add hooks in ``tpk_add_hookspecs(hooks)``. Callbacks then implement them, and code that
has a trainer calls them with ``trainer.hooks.hook.<name>(...)``.

**Implementation.** A process has one `Catalog`, which maps names to plugins. A trainer has one `HookManager`, the
registry of the trainer itself, its strategy, and each monitor and callback, under unique names. The hooks of a step are
compiled into `StepHooks`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
