"""What every training has unless told otherwise. Names, so that nothing is imported before it is needed."""

from __future__ import annotations

DEFAULT_CALLBACKS = ("MovingAverageSummary", "ProgressBar", "MergeAllSummaries", "RunUpdateOps")
DEFAULT_MONITORS = ("TFEventWriter", "JSONWriter", "ScalarPrinter")
