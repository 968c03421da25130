"""The state of a training, and its form in a checkpoint."""

from __future__ import annotations

import json

from protopyramid.training.state import Position, PrototypeSource, State

SOURCE: PrototypeSource = {
    "index": 0,
    "class": "spiculated",
    "level": 2,
    "image": "a.png",
    "row": 1,
    "col": 2,
    "similarity": 0.5,
}


def test_a_state_comes_back_from_json() -> None:
    state = State(Position(3, 2, 1), (0.5, -1.0), [SOURCE], {"fine": 2.0}, 4)
    assert State.from_json(json.dumps(state.to_json())) == state
    empty = State(Position())
    assert State.from_json(json.dumps(empty.to_json())) == empty


def test_a_checkpoint_of_an_earlier_version_is_read() -> None:
    """Written before phases were called phases; the format of run folders is the same."""
    content = (
        '{"position": {"stage": 2, "epoch": 1, "batch": 5}, "best_key": [0.75, -1.25], '
        '"records": [], "sums": {"fine": 0.5}, "count": 3}'
    )
    state = State.from_json(content)
    assert state == State(Position(2, 1, 5), (0.75, -1.25), [], {"fine": 0.5}, 3)
    assert json.dumps(state.to_json()) == content


def test_positions_are_ordered_by_phase_then_epoch_then_batch() -> None:
    positions = [Position(1, 0, 0), Position(0, 2, 0), Position(0, 1, 9), Position(0, 2, 1)]
    ordered = sorted(positions, key=lambda position: position.order)
    assert [p.order for p in ordered] == [(0, 1, 9), (0, 2, 0), (0, 2, 1), (1, 0, 0)]
