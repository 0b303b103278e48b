from __future__ import annotations

import pytest

from tpk.monitors.append_file import AppendFile


def test_a_line_that_is_written_in_part_is_taken_back(tmp_path):
    path = tmp_path / "lines"
    file = AppendFile(path)
    file.append("whole")
    raw = file._file

    class HalfWritten:
        """A file on a full disk: it takes the first half of what it is given."""

        def write(self, data):
            return raw.write(data[: len(data) // 2])

        def __getattr__(self, name):
            return getattr(raw, name)

    file._file = HalfWritten()
    with pytest.raises(OSError, match="in part only"):
        file.append("torn line")
    file._file = raw
    file.append("next")
    file.close()
    assert path.read_text() == "whole\nnext\n"
