"""The gallery: what prototypes do, their neighbours, and edited models saved as new runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import protopyramid as pp
from protopyramid.data.manifest import Manifest
from protopyramid.prototypes.neighbours import nearest_images
from protopyramid.reader.prototype_study import PrototypeStudy
from protopyramid.runs.provenance import samples_of
from protopyramid.runs.run import Run

from .conftest import MakeClient, pixels, serving, watched_page


def known(client: TestClient, path: str, key: str) -> Any:
    """What the server has found out after a while."""
    for _ in range(600):
        answer = client.get(path).json()
        assert answer["error"] is None
        if answer[key] is not None:
            return answer[key]
        time.sleep(0.1)
    raise AssertionError(f"{path}: {key} is still unknown")


@pytest.fixture
def own(make_run: Any) -> Run:
    """A run that nobody else reads: edited models are written beside it."""
    run: Run = make_run()
    return run


def test_how_often_a_prototype_matters_is_counted(client: TestClient, run: Run) -> None:
    found = known(client, f"/api/runs/{run.name}/use", "prototypes")
    samples = samples_of(run, None, "validation")
    explained = [pp.explain(run, sample.image) for sample in samples]
    for index, use in enumerate(found):
        assert use["images"] == len(samples)
        leading = sum(index in _five_strongest(each) for each in explained)
        assert use["leading"] == leading


def _five_strongest(explanation: Any) -> set[int]:
    added = {p.index: p.contributions[explanation.predicted] for p in explanation.prototypes}
    return set(sorted(added, key=lambda index: -abs(added[index]))[:5])


def test_what_a_plan_tells_is_what_is_saved_where_a_manifest_holds_some_of_the_images(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pp.load_run("phantoms")  # keeps the scores of all its training images
    monkeypatch.setattr(PrototypeStudy, "_data", lambda self: manifest.path)
    study = PrototypeStudy(run, manifest.path)
    try:
        while study.to_json()["prototypes"] is None:
            assert study.to_json()["error"] is None
            time.sleep(0.1)
        plan = study.editor().plan([22]).to_json()
        assert plan == run.edit(remove=[22], data=study.scored).plan.to_json()
        assert plan == run.edit(remove=[22]).plan.to_json()
        images = len(run.provenance.splits["validation"])
        assert study.to_json()["prototypes"][22]["images"] == images  # type: ignore[index]
    finally:
        study.close()


def test_neighbours_are_the_nearest_training_images(client: TestClient, run: Run) -> None:
    path = f"/api/runs/{run.name}/prototypes/1/neighbours"
    found = known(client, path, "neighbours")
    expected = nearest_images(run, samples_of(run, None, "train"))[1]
    assert [each["image"] for each in found] == [each.sample.name for each in expected]
    picture = pixels(client.get(f"{path}/0.png").content)
    assert picture.shape[0] == run.config.data.image_size
    assert client.get(f"{path}/99.png").status_code == 404


def test_an_edited_model_is_saved_beside_its_run_and_served(
    make_client: MakeClient, own: Run
) -> None:
    client = make_client([own])
    known(client, f"/api/runs/{own.name}/use", "prototypes")
    plan = client.post(f"/api/runs/{own.name}/plan", json={"remove": [0]}).json()
    assert plan["removed"] == [0]
    name = f"{own.name}-smaller"
    saved = client.post(f"/api/runs/{own.name}/edits", json={"remove": [0], "name": name})
    assert saved.status_code == 201, saved.text
    made = pp.load_run(own.folder.path.parent / name)
    assert len(made.prototypes) == len(own.prototypes) - 1
    assert saved.json()["prototypes"] == len(made.prototypes)
    assert name in [each["name"] for each in client.get("/api/runs").json()["runs"]]
    again = client.post(f"/api/runs/{own.name}/edits", json={"remove": [0], "name": name})
    assert again.status_code == 400 and "already" in again.json()["error"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\\b", ".hidden", "x" * 81, "é"])
def test_names_that_leave_the_folder_are_refused(client: TestClient, run: Run, name: str) -> None:
    known(client, f"/api/runs/{run.name}/use", "prototypes")
    answer = client.post(f"/api/runs/{run.name}/edits", json={"remove": [0], "name": name})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("name:")


def test_a_black_box_has_nothing_to_edit(make_client: MakeClient, black_box: Run) -> None:
    client = make_client([black_box])
    assert client.get(f"/api/runs/{black_box.name}/use").json()["prototypes"] is None
    answer = client.post(f"/api/runs/{black_box.name}/plan", json={"remove": [0]})
    assert answer.status_code == 400


# -- on the page -------------------------------------------------------------------------------------
@pytest.fixture
def gallery(browser: Any, own: Run, manifest: Manifest) -> Iterator[Any]:
    with (
        serving(own.folder.path, "--data", manifest.path) as address,
        watched_page(browser, address) as page,
    ):
        page.get_by_role("link", name="Prototypes").click()
        yield page


def test_the_gallery_shows_prototypes_and_saves_a_model_without_one(gallery: Any, own: Run) -> None:
    cards = gallery.locator("[data-testid=prototype-card]")
    cards.nth(len(own.prototypes) - 1).wait_for()
    gallery.select_option("[data-testid=gallery-level]", "5")
    levels = {record.index: record.level for record in own.prototypes}
    shown = cards.evaluate_all("all => all.map(each => Number(each.dataset.index))")
    assert shown and {levels[index] for index in shown} == {5}
    cards.first.click()
    gallery.locator("[data-testid=neighbour]").first.wait_for()
    gallery.get_by_text("What it costs to remove it").wait_for()
    gallery.locator("[data-testid=remove]").check()
    gallery.get_by_role("button", name="Save as a new run…").click()
    gallery.locator("[data-testid=edit-name]").fill("without-one")
    gallery.locator("[data-testid=save-edit]:enabled").click()
    gallery.get_by_text("Saved as without-one").wait_for()
    made = pp.load_run(own.folder.path.parent / "without-one")
    assert len(made.prototypes) == len(own.prototypes) - 1
    gallery.keyboard.press("Escape")
    assert gallery.locator("#run option").all_inner_texts() == [own.name, "without-one"]


def test_values_of_tiles_are_those_of_the_file(client: TestClient) -> None:
    from .conftest import png

    values = np.random.default_rng(3).integers(0, 65536, (600, 530)).astype(np.uint16)
    opened = client.post("/api/images", files={"file": ("film.png", png(values))}).json()
    answer = client.get(f"/api/images/{opened['id']}/values/0/1/1")
    assert (answer.headers["x-height"], answer.headers["x-width"]) == ("88", "18")
    sent = np.frombuffer(answer.content, "<u2").reshape(88, 18)
    assert np.array_equal(sent, values[512:, 512:])
