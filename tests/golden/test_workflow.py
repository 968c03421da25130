"""Data, training and all that is done with a run give what they gave.

Bytes are compared where the processor and the libraries are those of the recording, numbers
everywhere. Files, keys and columns may be added, and none may go.
"""

import pytest

from .comparison import missing
from .conftest import recorded
from .workflow import RUNS


def test_phantoms(check):
    check("phantoms.json")


@pytest.mark.parametrize("run", RUNS)
def test_training(run, check):
    check(f"training/{run}.json")


@pytest.mark.parametrize("name", recorded("shapes.json"))
def test_json_keys_and_types(name, observed):
    assert not missing(recorded("shapes.json")[name], observed["shapes.json"][name])


@pytest.mark.parametrize("name", recorded("headers.json"))
def test_table_columns(name, observed):
    expected, found = recorded("headers.json")[name], observed["headers.json"][name]
    assert [column for column in found if column in expected] == expected


def test_json_values(check):
    check("values.json")


def test_public_api(check):
    check("api.json")
