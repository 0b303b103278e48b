from .base import Monitor as Monitor
from .csv_writer import CSVWriter as CSVWriter
from .history import History as History
from .json_writer import JSONWriter as JSONWriter
from .monitors import Monitors as Monitors
from .scalar_printer import ScalarPrinter as ScalarPrinter
from .tf_event_writer import TFEventWriter as TFEventWriter
from .values import ReportedValueError as ReportedValueError
