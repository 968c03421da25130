"""The class-pair tables: the paper's matrices, and the rule for classes that they do not name."""

import pytest

from protopyramid.config.schema import PAPER_INSIDE, PAPER_OUTSIDE
from protopyramid.losses import fine_tables

MARGINS = ["circumscribed", "indistinct", "spiculated", "negative"]
# Captions of the supplement's tables; rows are the sample's class.
OUTSIDE = [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]
INSIDE = [[0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 0]]
BI_RADS = ["circumscribed", "obscured", "microlobulated", "indistinct", "spiculated"]


def tables(names, negative, transpose=False, inside=PAPER_INSIDE, outside=PAPER_OUTSIDE):
    inner, outer = fine_tables(inside, outside, names, negative, transpose)
    return inner.tolist(), outer.tolist()


def test_tables_are_the_papers_matrices():
    assert tables(MARGINS, "negative") == (INSIDE, OUTSIDE)


def test_transpose_turns_the_margin_block_of_the_inside_table_alone():
    inner, outer = tables(MARGINS, "negative", transpose=True)
    assert inner == [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert outer == OUTSIDE


@pytest.mark.parametrize("order", [[3, 1, 0, 2], [2, 3, 1, 0]])
def test_tables_follow_class_names_not_their_order(order):
    names = [MARGINS[number] for number in order]
    inner, outer = tables(names, "negative")
    assert inner == [[INSIDE[row][column] for column in order] for row in order]
    assert outer == [[OUTSIDE[row][column] for column in order] for row in order]
    turned, _ = tables(names, "negative", transpose=True)
    plain, _ = tables(MARGINS, "negative", transpose=True)
    assert turned == [[plain[row][column] for column in order] for row in order]


def test_five_bi_rads_margins_keep_named_pairs_and_take_the_rule_for_the_rest():
    inner, outer = tables(BI_RADS, "")
    assert outer == [[1] * 5 for _ in range(5)]
    assert inner == [
        # circ obsc micr ind spic
        [0, 1, 1, 0, 0],  # circumscribed: indistinct and spiculated are named by the paper
        [1, 0, 1, 1, 1],  # obscured: not named
        [1, 1, 0, 1, 1],  # microlobulated: not named
        [0, 1, 1, 0, 0],  # indistinct
        [1, 1, 1, 1, 0],  # spiculated: the paper penalises circumscribed and indistinct
    ]


def test_benign_malignant_normal_take_the_rule():
    inner, outer = tables(["benign", "malignant", "normal"], "normal")
    assert inner == [[0, 1, 1], [1, 0, 1], [0, 0, 0]]
    assert outer == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]


def test_without_a_negative_class_no_row_is_zero():
    inner, outer = tables(["cat", "dog"], "")
    assert inner == [[0, 1], [1, 0]]
    assert outer == [[1, 1], [1, 1]]


def test_a_table_of_the_user_wins_over_the_rule_even_in_the_negative_row():
    inner, outer = tables(
        ["a", "b", "none"],
        "none",
        inside={"a": {"b": 0.25}},
        outside={"none": {"a": 0.5}},
    )
    assert inner == [[0, 0.25, 1], [1, 0, 1], [0, 0, 0]]
    assert outer == [[1, 1, 1], [1, 1, 1], [0.5, 0, 0]]
