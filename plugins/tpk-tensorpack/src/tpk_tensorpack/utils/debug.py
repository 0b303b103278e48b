"""Call tracing."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


def enable_call_trace() -> None:
    """Print the function, file and line of every call from now on."""

    def tracer(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            caller, code = frame.f_back, frame.f_code
            if caller is not None and code.co_name != "write":
                sys.stdout.write(
                    f"Call to `{code.co_name}` on line {frame.f_lineno} of {code.co_filename} from line "
                    f"{caller.f_lineno} of {caller.f_code.co_filename}\n"
                )

    sys.settrace(tracer)
