"""Drawings of the call order of a launch (with the phases of the setup), the loop and a step; and of the three classes.

They are drawn from the trees below. `tests/manual/test_drawings.py` compares them with a recorded run.
"""

from html import escape

from attrs import field, frozen


@frozen
class Call:
    """Something that is called: a hook of plugins, a phase of a trainer, or a method of a strategy."""

    name: str
    says: str = ""
    kind: str = "work"


@frozen
class Box:
    """A group of calls: a phase, or a part of the loop that is repeated."""

    name: str
    says: str = ""
    parts: tuple = field(default=(), converter=tuple)
    kind: str = "phase"


def hook(name, says=""):
    return Call(name, says, "hook")


def strategy(name, says=""):
    return Call(name, says, "strategy")


LAUNCH = Box(
    "launch_train_with_config(config, trainer)",
    "from a description to a run",
    kind="outer",
    parts=[
        Call("make_trainer", "a name becomes a trainer; plugins of the group tpk.plugins are loaded"),
        hook("tpk_configure", "the config, before its names are resolved"),
        hook("tpk_default_callbacks", "more callbacks"),
        Box(
            "setup",
            "all names are resolved here",
            parts=[
                Box("resolve_plugins", "names become instances, or are errors; no op is built yet"),
                Box(
                    "join",
                    "connect to the other processes",
                    parts=[
                        strategy("join"),
                        strategy("serve", "a parameter server stays here until the others are done; it does not train"),
                    ],
                ),
                Box(
                    "setup_graph",
                    "the towers",
                    parts=[
                        strategy("prepare_input", "stage data on devices, or divide it"),
                        strategy("build", "calls your build_graph once for each tower; gradients become train_op"),
                        strategy("callbacks", "callbacks that the strategy needs"),
                    ],
                ),
                Box(
                    "setup_callbacks",
                    "trainer, strategy, callbacks and monitors are registered in trainer.hooks",
                    parts=[
                        hook("setup_graph", "last chance to add ops to the graph"),
                        strategy("complete_graph", "ops that concern all variables"),
                    ],
                ),
                Box(
                    "initialize",
                    "the graph is finalized; no op can be added",
                    parts=[
                        strategy("open_session", "variables are initialized or restored"),
                        strategy("session_config"),
                        strategy("session_creator", "the session is created"),
                        strategy("after_restore", "replicas get the values of the first one"),
                    ],
                ),
            ],
        ),
        Box(
            "main_loop",
            parts=[
                Call("loop.run", "the loop; see the next drawing"),
                strategy("leave", "session and files are closed"),
            ],
        ),
    ],
)

STEP = Box(
    "run_step()",
    "a trainer may override it",
    kind="outer",
    parts=[
        hook("before_run", "request additional fetches and feeds"),
        Call("Session.run", "once: train_op and all requests"),
        hook("after_run", "each gets its own results"),
    ],
)

LOOP = Box(
    "loop.run",
    kind="outer",
    parts=[
        hook("before_train", "once; the session exists"),
        Box(
            "for epoch in starting_epoch … max_epoch",
            kind="repeat",
            parts=[
                hook("before_epoch"),
                Box(
                    "for local_step in 0 … steps_per_epoch - 1",
                    kind="repeat",
                    parts=[*STEP.parts, hook("trigger_step", "after each step, whatever it does")],
                ),
                hook("after_epoch", "complete results that were collected step by step"),
                hook("trigger_epoch", "evaluate, save, report"),
                hook("before_checkpoint", "if a saver requested it; or after the trigger_step with the request"),
            ],
        ),
        hook("after_train", "always, however the run ends; each callback isolated"),
    ],
)


CLASSES = Box(
    "Trainer",
    "the graph, the plugins and the session, and the phases that they go through",
    kind="outer",
    parts=[
        Call("train", "creates a RunRecord from its arguments; then setup, then main_loop"),
        Call("setup", "the phases before the loop; opens the record once the graph is built"),
        Box(
            "RunRecord",
            "one attempt at a run, on disk; it reads the trainer, and changes only the length of the loop",
            kind="repeat",
            parts=[
                Call("open", "directory, lock, log and config.json; returns the resumption, if there is one"),
                Call("begin", "setup is complete"),
                Call("__exit__", "the outcome; log and directory are closed"),
            ],
        ),
        Call("main_loop", "starts the loop, and releases all resources after it"),
        Box(
            "TrainLoop",
            "trainer.loop: runs and counts the steps, and ends the run",
            kind="repeat",
            parts=[
                Call("start", "signals; what the log says at the end"),
                Call("run", "the loop; it calls run_step of the trainer, and hooks"),
                Call("sync", "before a checkpoint: updates the step counter in the graph"),
            ],
        ),
    ],
)


def launch():
    """Return the drawing of a launch, as HTML."""
    return drawn(LAUNCH)


def loop():
    """Return the drawing of the loop, as HTML."""
    return drawn(LOOP)


def step():
    """Return the drawing of a step, as HTML."""
    return drawn(STEP)


def classes():
    """Return the drawing of the three classes, as HTML."""
    return drawn(CLASSES)


def drawn(part):
    says = f'<span class="says">{escape(part.says)}</span>' if part.says else ""
    name = f'<code class="name">{escape(part.name)}</code>'
    if isinstance(part, Call):
        return f'<div class="call {part.kind}">{name}{says}</div>'
    inner = "".join(drawn(each) for each in part.parts)
    return f'<div class="box {part.kind}"><div class="head">{name}{says}</div>{inner}</div>'


def calls(part, repeats):
    """Return the calls in order: a name each, and for a phase a pair of its name and its calls.

    Args:
        part: a drawing, or a part of one. The loop of the launch is replaced by its calls.
        repeats: the number of repetitions of repeated parts.
    """
    if part == Call("loop.run", part.says):
        return calls(LOOP, repeats)
    if isinstance(part, Call):
        return [part.name]
    inner = [each for inner in part.parts for each in calls(inner, repeats)]
    if part.kind == "phase":
        return [(part.name, inner)]
    return inner * (repeats if part.kind == "repeat" else 1)


def phases(part):
    """Return the names of the phases in a drawing."""
    if isinstance(part, Call):
        return []
    own = [part.name] if part.kind == "phase" else []
    return own + [name for inner in part.parts for name in phases(inner)]
