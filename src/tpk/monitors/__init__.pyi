from .base import Monitor as Monitor
from .csv_writer import CSVWriter as CSVWriter
from .history import History as History
from .json_writer import JSONWriter as JSONWriter
from .monitors import Monitors as Monitors
from .scalar_printer import ScalarPrinter as ScalarPrinter
from .summary_protos import image_summary as image_summary
from .tf_event_writer import TFEventWriter as TFEventWriter
from .values import ReportedValueError as ReportedValueError, json_number as json_number
