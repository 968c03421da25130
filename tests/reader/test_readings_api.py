"""A reader study over HTTP: blind, unaided first, and all that was answered survives a killed server."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from protopyramid.data.manifest import Manifest
from protopyramid.runs.run import Run

from .conftest import MakeClient
from .test_app import contract, error_of, explained

ANSWER = {"margin": "indistinct", "confidence": 70, "birads": "4A", "seconds": 0.5}


@pytest.fixture
def study(make_client: MakeClient, tmp_path: Path) -> TestClient:
    return make_client(readings=tmp_path / "study")


def opened(client: TestClient, reader: str = "Ada") -> Any:
    answer = client.post("/api/readings/open", json={"reader": reader})
    assert answer.status_code == 200, answer.text
    return answer.json()["due"]


def give(client: TestClient, due: Any, reader: str = "Ada", **said: Any) -> Any:
    body = {"reader": reader, "place": due["place"], "stage": due["stage"], **ANSWER, **said}
    return client.post("/api/readings/answers", json=body)


def test_a_whole_study_to_its_table_and_summary(
    study: TestClient, run: Run, manifest: Manifest
) -> None:
    cases = manifest.split("test")
    classes = run.config.data.classes
    for reader, truthful in (("Ada", True), ("Bea", False)):
        study.post("/api/readings/readers", json={"reader": reader})
        count = 0
        while due := opened(study, reader):
            said = {"margin": classes[count % 4]}
            if due["stage"] == "aided":
                predicted = due["explanation"]["predicted"]
                said = {"margin": predicted if not truthful else classes[count % 4]}
                count += 1
            assert give(study, due, reader, **said).status_code == 200
        assert count == len(cases)
    rows = list(csv.DictReader(io.StringIO(study.get("/api/readings/readings.csv").text)))
    assert len(rows) == 2 * len(cases)
    assert sorted(row["case"] for row in rows[: len(cases)]) == sorted(each.name for each in cases)
    truth = {each.name: each.label for each in cases}
    for row in rows:
        assert row["truth"] == truth[row["case"]]
        sample = next(each for each in cases if each.name == row["case"])
        assert row["model_margin"] == explained(run, sample.image).predicted
        assert (row["reader"] == "Ada") <= (row["changed"] == "0")
        assert (row["reader"] == "Bea") <= (row["aided_margin"] == row["model_margin"])
    summary = study.get("/api/readings/summary").json()
    assert summary["readers"] == ["Ada", "Bea"] and summary["readings"] == len(rows)
    right = [row["aided_margin"] == row["truth"] for row in rows]
    per_reader = [sum(right[: len(cases)]) / len(cases), sum(right[len(cases) :]) / len(cases)]
    assert summary["accuracy"]["aided"]["per_reader"] == pytest.approx(per_reader)
    relied = [row for row in rows if row["effect"] == "over-reliance"]
    assert summary["over_reliance"]["happened"] == len(relied)
    assert "multi-reader" in summary["method"]
    listed = study.get("/api/readings").json()
    assert [each["done"] for each in listed["readers"]] == [len(cases)] * 2


def test_the_model_is_not_shown_before_the_unaided_answer(
    study: TestClient, run: Run, manifest: Manifest
) -> None:
    study.post("/api/readings/readers", json={"reader": "Ada"})
    due = opened(study)
    assert due["stage"] == "unaided" and due["explanation"] is None and due["unaided"] is None
    assert give(study, {**due, "stage": "aided"}).status_code == 409
    assert give(study, due).status_code == 200
    aided = opened(study)
    assert (aided["stage"], aided["unaided"]["margin"]) == ("aided", "indistinct")
    assert aided["film"]["id"] == due["film"]["id"]  # not decoded again
    logits = aided["explanation"]["logits"]
    candidates = [explained(run, each.image).logits for each in manifest.split("test")]
    assert any(logits == pytest.approx(each, abs=1e-6) for each in candidates)
    assert contract(aided["explanation"])["predicted"] in run.config.data.classes


def test_nothing_tells_a_reader_the_name_or_the_class_of_a_case(
    study: TestClient, manifest: Manifest
) -> None:
    study.post("/api/readings/readers", json={"reader": "Ada"})
    due = opened(study)
    give(study, due)
    texts = [
        json.dumps(due),
        json.dumps({**opened(study)["film"]}),
        study.get("/api/cases").text,
        study.post("/api/cases/0").text,
        study.get("/api/readings").text,
    ]
    for sample in manifest.split("test"):
        assert not any(Path(sample.name).name in text for text in texts)
    assert {case["label"] for case in study.get("/api/cases").json()["cases"]} == {""}


def test_a_lesion_box_is_not_shown_where_only_some_cases_have_one(
    study: TestClient, manifest: Manifest
) -> None:
    cases = manifest.split("test")
    assert {each.box is None for each in cases} == {True, False}
    study.post("/api/readings/readers", json={"reader": "Ada"})
    for _ in cases:  # the absence of a box would tell which cases are negative
        due = opened(study)
        assert due["film"]["lesion"] is None
        give(study, due)
        give(study, opened(study))
    for number in range(len(cases)):
        assert study.post(f"/api/cases/{number}").json()["lesion"] is None


def test_lesion_boxes_are_shown_where_all_cases_have_one(
    make_client: MakeClient, manifest: Manifest, tmp_path: Path
) -> None:
    marked = [each for each in manifest.split("test") if each.box is not None]
    client = make_client(readings=tmp_path / "study", cases=marked)
    client.post("/api/readings/readers", json={"reader": "Ada"})
    assert opened(client)["film"]["lesion"] in [list(each.box) for each in marked if each.box]


def test_without_a_study_its_routes_say_so(client: TestClient) -> None:
    assert client.get("/api/runs").json()["readings"] is False
    assert "--readings" in error_of(client.get("/api/readings"), 404)
    assert "--annotations" in error_of(client.get("/api/annotations"), 404)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"confidence": 101}, 422),
        ({"confidence": "high"}, 422),
        ({"birads": "9"}, 422),
        ({"margin": "round"}, 400),
        ({"seconds": -1}, 422),
        ({"seconds": "inf"}, 422),
        ({"place": 0}, 422),
        ({"place": 3}, 409),
        ({"stage": "later"}, 422),
        ({"reader": "Mallory"}, 400),
        ({"more": 1}, 422),
    ],
)
def test_wrong_answers_are_told_in_one_line(
    study: TestClient, said: dict[str, Any], status: int
) -> None:
    study.post("/api/readings/readers", json={"reader": "Ada"})
    due = opened(study)
    error_of(give(study, due, **{"place": due["place"], **said}), status)
    assert opened(study)["place"] == 1


# -- kill -9 --------------------------------------------------------------------------------------
def start(run: Run, manifest: Manifest, folder: Path) -> tuple[subprocess.Popen[str], str]:
    words = ["serve", run.folder.path, "--data", manifest.path, "--readings", folder]
    process = subprocess.Popen(
        [sys.executable, "-m", "protopyramid", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout
    return process, process.stdout.readline().strip()


def post(address: str, path: str, body: dict[str, Any]) -> Any:
    kind = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), kind)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def test_a_server_killed_in_the_middle_of_a_case_loses_nothing(
    run: Run, manifest: Manifest, tmp_path: Path
) -> None:
    """Killed with SIGKILL after an unaided answer, and again while a second reader is at it."""
    folder, given = tmp_path / "study", []
    who = {"reader": "Ada"}
    for _ in range(3):
        process, address = start(run, manifest, folder)
        try:
            post(address, "api/readings/readers", who)
            due = post(address, "api/readings/open", who)["due"]
            if given:  # where the last process died
                assert (due["place"], due["stage"]) == (given[-1]["place"], "aided")
                assert due["unaided"]["confidence"] == given[-1]["confidence"]
                body = {**who, "place": due["place"], "stage": "aided", **ANSWER}
                post(address, "api/readings/answers", body)
                due = post(address, "api/readings/open", who)["due"]
            said = {**ANSWER, "confidence": 10 + len(given)}
            body = {**who, "place": due["place"], "stage": "unaided", **said}
            post(address, "api/readings/answers", body)
            given.append({"place": due["place"], **said})
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        assert process.returncode == -signal.SIGKILL
    done = subprocess.run(
        [sys.executable, "-m", "protopyramid", "readings", folder, "--out", tmp_path / "r.csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 reader, 2 complete readings" in done.stdout
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [int(row["unaided_confidence"]) for row in rows] == [10, 11, 12]
    assert [row["aided_margin"] for row in rows] == ["indistinct", "indistinct", ""]
