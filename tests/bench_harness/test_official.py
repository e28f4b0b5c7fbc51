"""The Who&When script's rules: each quirk on a case made by hand, and its pattern as the oracle."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cockpithat.bench.official import (
    Prediction,
    accuracy,
    agent_right,
    answer_text,
    read_answer,
    read_predictions,
    step_right,
)

GOOD = "Agent Name: WebSurfer\nStep Number: 12\nReason for Mistake: it clicked."


def test_gold_step_1_matches_12_and_not_the_other_way_round() -> None:
    twelve = read_answer(GOOD)
    assert step_right(twelve, "1") and step_right(twelve, "2") and step_right(twelve, "12")
    assert not step_right(twelve, "3") and not step_right(twelve, "112")


def test_the_gold_name_may_be_a_part_of_the_predicted_one_and_case_counts() -> None:
    surfer = read_answer(GOOD)
    assert agent_right(surfer, "WebSurfer") and agent_right(surfer, "Surfer")
    assert not agent_right(surfer, "Websurfer") and not agent_right(surfer, "WebSurfer_2")


def test_a_name_with_a_hyphen_or_a_space_is_cut_short_and_so_is_wrong() -> None:
    read = read_answer("Agent Name: Data-Analyst\nStep Number: 3")
    assert read == Prediction("Data", "3")
    assert not agent_right(read, "Data-Analyst") and step_right(read, "3")
    assert read_answer(answer_text("Dialogue Manager", 3)) == Prediction("Dialogue", "3")


def test_an_unparsed_answer_is_a_miss_in_both_and_stays_in_the_denominator() -> None:
    assert read_answer("Agent Name: WebSurfer\nStep Number: unclear") is None
    assert read_answer("**Agent Name:** WebSurfer\nStep Number: 3") is None  # bold hides the name
    assert read_answer("Agent Name: (WebSurfer)\nStep Number: 3") is None
    assert read_answer(answer_text("WebSurfer", None)) is None
    gold = {"1.json": ("WebSurfer", "12"), "2.json": ("WebSurfer", "3"), "3.json": ("Coder", "0")}
    log = f"Prediction for 1.json:\n{GOOD}\nPrediction for 2.json:\nAgent Name: WebSurfer\n"
    result = accuracy(read_predictions(log), gold)
    assert (result.agent, result.step) == (1 / 3, 1 / 3)


def test_an_answer_without_a_step_number_borrows_the_next_digits_never_another_block() -> None:
    log = "Prediction for 1.json: Agent Name: A\nStep Number:\n\n7 or so\nPrediction for 2.json: none"
    assert read_predictions(log) == {"1.json": Prediction("A", "7")}  # \s* crosses lines


def test_a_later_block_of_a_file_replaces_the_earlier_one() -> None:
    log = "Prediction for 1.json: Agent Name: A Step Number: 1 "
    log += "Prediction for 1.json: agent name: B step number: 2"
    assert read_predictions(log) == {"1.json": Prediction("B", "2")}
    # ... but not if the later one cannot be parsed: the script skips it with a warning.
    assert read_predictions(log + " Prediction for 1.json: no idea") == {"1.json": Prediction("B", "2")}


PIECES = ["Prediction for", "Prediction for ", " ", "1", ".json", ".json:", ":", "\n", "x", "Agent Name: ",
          "Step Number: ", "7", "A-b", "*"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_every_log_is_read_as_by_the_scripts_own_pattern(log: str) -> None:
    expected = {}
    for block in re.finditer(r"Prediction for ([^:]+\.json):(.*?)(?=Prediction for|\Z)", log, re.DOTALL):
        content = block.group(2).strip()
        agent = re.search(r"Agent Name:\s*([\w_]+)", content, re.IGNORECASE)
        step = re.search(r"Step Number:\s*(\d+)", content, re.IGNORECASE)
        if agent and step:
            expected[block.group(1).strip()] = Prediction(agent.group(1), step.group(1))
    assert read_predictions(log) == expected


def test_reading_stays_linear_on_a_log_without_colons() -> None:
    assert read_predictions("Prediction for a " * 60_000) == {}
