"""The reference pages from docstrings: one for each room and some packages, with their public names."""

import json

from public_names import PACKAGES, ROOMS, module_of, names_of

from tpk.plugin.callback import HOOK_NAMES

TITLES = {
    "train": "Training",
    "callbacks": "Callbacks",
    "monitors": "Monitors and history",
    "strategies": "Strategies",
    "dataflow": "Data",
    "input_source": "Input sources",
    "tower": "Towers",
    "layers": "Layers",
    "layers.rnn_cell": "Recurrent cells",
    "graph": "Graphs, gradients and optimizers",
    "checkpoint": "Checkpoints",
    "predict": "Prediction and export",
    "session": "Sessions",
    "plugin": "Plugins",
    "errors": "Errors",
    "testing": "Testing plugins",
    "tpk_distributed": "Several processes: tpk-distributed",
    "tpk_estimator": "Estimators: tpk-estimator",
    "tpk_keras": "Keras: tpk-keras",
    "tpk_lmdb": "LMDB files: tpk-lmdb",
}
TOPICS = {
    "Combine callbacks, and choose when they run": ("triggers", "factory", "session_hooks"),
    "Debug": ("debugging",),
    "Stop and guard": ("guards",),
    "Hyperparameters": ("hyper_params",),
    "Evaluate": ("inference",),
    "Look at tensors, gradients and devices": ("inspection",),
    "Run processes, threads and commands": ("background",),
    "Save": ("savers",),
    "Statistics and progress": ("statistics",),
    "Ops and weights": ("graph_ops", "run_tensors", "averaged_weights"),
}
"""The headings of the page about callbacks, and the modules and folders of each."""

OF_ALL_CALLBACKS = ["!^_", f"!^({'|'.join([*HOOK_NAMES, 'hook_implementations'])})$"]
"""Left out of the entries of callbacks: the hooks, which are documented once."""

FOUND_AFTER_GUIDES = "---\nsearch:\n  boost: 0.5\n---\n\n"
"""Ranks these pages below guides in search results."""


def pages():
    """Return the text of each page by its path."""
    return {f"reference/api/{room}.md": page_of(room) for room in (*ROOMS, *PACKAGES)}


def page_of(room):
    heading = f"{FOUND_AFTER_GUIDES}# {TITLES[room]}\n"
    intro = f"{heading}\n::: {module_of(room)}\n    options: {{members: [], show_root_heading: false}}\n"
    if room == "callbacks":
        parts = [
            f"\n## {title}\n{entries([name for name in names_of(room) if topic_of(name) in topics], level=3)}"
            for title, topics in TOPICS.items()
        ]
        return intro + "".join(parts)
    return intro + entries(names_of(room))


def topic_of(name):
    return name.module.lstrip(".").split(".")[0]


def entries(names, level=2):
    parts = []
    for name in names:
        options = {"heading_level": level}
        if name.room in ("callbacks", "monitors", "strategies", *PACKAGES) or name.path == "tpk.plugin.Callback":
            options["filters"] = OF_ALL_CALLBACKS
        parts.append(f"\n::: {name.path}\n    options: {json.dumps(options)}\n")
    return "".join(parts)
