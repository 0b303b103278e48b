from __future__ import annotations

import logging

import pytest

from tpk.checkpoint.restore import Row, format_table, log_table


def rows(count):
    kinds = [
        ("loaded", "(3, 3)", "(3, 3)"),
        ("missing", "(3,)", ""),
        ("unused", "", "(4,)"),
        ("mismatched", "(3,)", "(4,)"),
    ]
    return [Row(*(kind[0], f"{kind[0]}/w{index:05}", *kind[1:])) for kind in kinds for index in range(count)]


def test_a_few_names_stand_there_in_full():
    text, is_whole = format_table(rows(1), ["run/model-5"])
    assert is_whole
    assert text == (
        "restored 1 variables from run/model-5, 1 mismatched, 1 missing, 1 unused\n"
        "              name               in the graph  stored\n"
        "  mismatched  mismatched/w00000  (3,)          (4,)\n"
        "  missing     missing/w00000     (3,)          -\n"
        "  unused      unused/w00000      -             (4,)\n"
        "  loaded      loaded/w00000      (3, 3)        (3, 3)"
    )


def test_of_thousands_there_are_some_of_each_and_the_number_of_the_rest():
    text, is_whole = format_table(rows(5000), ["a"])
    lines = text.splitlines()
    assert not is_whole and len(lines) < 80
    assert lines[0] == "restored 5,000 variables from a, 5,000 mismatched, 5,000 missing, 5,000 unused"
    assert [line.split()[:1] + line.split()[-3:] for line in lines if "…" in line] == [
        ["mismatched", "and", "4,980", "more"],
        ["missing", "and", "4,980", "more"],
        ["unused", "and", "4,980", "more"],
        ["loaded", "and", "4,990", "more"],
    ]


def test_a_long_name_keeps_both_ends_and_the_table_its_width():
    name = "tower/" + "block/" * 100 + "kernel"
    text, is_whole = format_table([Row("loaded", name, "()", "()")], ["a"])
    assert not is_whole and max(map(len, text.splitlines())) < 120
    assert "tower/block" in text and "block/kernel" in text


def test_of_many_loaded_those_with_a_remark_are_shown():
    text, _ = format_table([*rows(100)[:100], Row("loaded", "z", "()", "()", "cast from float64 to float32")], ["a"])
    assert "cast from float64 to float32" in text


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_all_names_are_at_debug_level_if_not_all_are_in_the_table(caplog, level):
    caplog.set_level(level, logger="tpk")
    log_table(rows(30), ["a"])
    log_table(rows(2), ["a"])
    detailed = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert len(detailed) == (level == logging.DEBUG)
    for message in detailed:
        assert all(row.name in message for row in rows(30))
