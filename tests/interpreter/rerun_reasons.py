"""Shows why tests needed a second try: pytest-rerunfailures says only which ones. CI uses ``-p rerun_reasons``."""


def pytest_terminal_summary(terminalreporter):
    """Print the failures of the first tries."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"first try of {report.nodeid}", sep="_")
        terminalreporter.line(report.longreprtext)
