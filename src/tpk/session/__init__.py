"""Sessions, and the step engine: one run of a session serves a step and all of its hooks.

A step takes one of three ways through this room, all of which `HookedSession.run` starts:

- **repeated**: the step and each hook ask for the same objects as in the last step. `hooked.py` calls the compiled run
  of that step again. Almost all steps go this way.
- **planned**: they ask for something else. `requests.py` merges what they ask for, `plan.py` finds out how to run that
  and compiles it; or `Session.run` runs it, if it cannot be compiled.
- **many steps**: the run makes k steps. `many_steps.py` runs a loop in the graph over what the plan says, and the last
  step by the plan itself if something is fetched from it.

`caller_thread.py` decides, for the first two, whether a short run is made in the calling thread. `creator.py` creates
the session.

The names are resolved when they are first used, because some files of this room do not need TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
