"""report.html and MODEL_CARD.md: whole, self-contained, honest about what is missing."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from protopyramid.config import differences, load_config
from protopyramid.data.manifest import Manifest
from protopyramid.evaluation.evaluate import evaluate_run
from protopyramid.evaluation.results import read_evaluation
from protopyramid.explanations.ranking import RankedImage
from protopyramid.reports.facts import difference_rows, difference_title, difference_words
from protopyramid.reports.model_card import write_model_card
from protopyramid.reports.report import write_report
from protopyramid.runs.run import Run, load_run

VOID = {"meta", "img", "br", "link", "input", "hr"}


class Checker(HTMLParser):
    """Tags that are closed in order, and everything that a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.unlabelled = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self.unlabelled += tag == "img" and not known.get("alt")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def evaluated(make_run: Callable[..., Run]) -> Run:
    run = make_run()
    evaluate_run(run, bootstrap=20)
    lines = [
        '{"kind": "epoch", "stage": "A", "epoch": 1, "losses": {"cross_entropy": 1.4, "fine": 2}, '
        '"validation": {"auroc": null, "accuracy": 0.3}}',
        '{"kind": "project"}',
        '{"kind": "epoch", "stage": "C", "epoch": 2, "losses": {"cross_entropy": 0.7}, '
        '"validation": {"auroc": 0.6, "accuracy": 0.4}}',
    ]
    run.folder.write_text("metrics.jsonl", "\n".join(lines) + "\n")
    return run


def test_report_is_one_page_without_network_or_script(evaluated: Run, manifest: Manifest) -> None:
    page = write_report(evaluated, None, manifest.split("test")).read_text()
    found = checked(page)
    assert "script" not in found.tags and found.unlabelled == 0
    assert found.links and all(link.startswith("data:image/") for link in found.links)
    assert "url(" not in page and "@import" not in page
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles == [
        "Data",
        "Results on test",
        "Where it looks",
        "Explained cases",
        "Prototypes",
        "Health of the prototypes",
        "Training",
        "Differences from FPN-IAIA-BL",
    ]
    assert "Best explained" in page and "Worst explained" in page and "chance" in page


def test_report_shows_the_figures_of_the_evaluation(evaluated: Run) -> None:
    results = read_evaluation(evaluated.folder)
    page = write_report(evaluated, results).read_text()
    without, included = results.auroc.mean, results.auroc.with_negative.mean
    assert f"<b>{without:.2f}</b><span>mean AUROC on test, negative images left out" in page
    assert f"<b>{included:.2f}</b><span>mean AUROC with negative images included" in page
    for count in (count for row in results.confusion_matrix for count in row):
        assert f">{count} <small>" in page


def test_report_names_every_finding_on_the_prototypes(evaluated: Run) -> None:
    results = read_evaluation(evaluated.folder)
    health = replace(results.health, findings=("prototype 3 is <odd>", "prototype 4 is dead"))
    page = write_report(evaluated, replace(results, health=health)).read_text()
    assert "prototype 3 is &lt;odd&gt;" in page and "prototype 4 is dead" in page
    healthy = replace(results, health=replace(health, findings=()))
    assert "Health of the prototypes" not in write_report(evaluated, healthy).read_text()


def test_report_without_evaluation_or_samples_says_so(run: Run) -> None:
    page = write_report(run).read_text()
    checked(page)
    assert "Not evaluated yet" in page and "Explained cases" not in page


def test_report_says_how_many_cases_are_of_another_class(run: Run) -> None:
    words = "come from a training image of another class"
    assert words not in write_report(run).read_text()
    changed = [replace(record, label="negative") for record in run.prototypes]
    count = sum(record.class_name != "negative" for record in changed)
    page = write_report(replace(run, prototypes=changed)).read_text()
    assert f"{count} of {len(changed)} prototypes {words}" in page


def test_report_says_in_words_that_no_case_is_right_for_the_right_reason(
    evaluated: Run, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    poor = [
        RankedImage(sample, sample.label, 0.9, inside=0.1, chance=0.12)
        for sample in manifest.split("test")[:2]
    ]
    monkeypatch.setattr("protopyramid.reports.report.rank", lambda run, samples: poor)
    page = write_report(evaluated, None, manifest.split("test")).read_text()
    checked(page)
    assert "No case qualifies: the model is nowhere both right" in page
    assert page.count("10% lies inside the annotation (chance: 12%)") == 2


def test_report_of_a_black_box_says_that_it_is_one(black_box: Run, manifest: Manifest) -> None:
    results = evaluate_run(black_box, bootstrap=10)
    page = write_report(black_box, results, manifest.split("test")[:2]).read_text()
    checked(page)
    assert "black box" in page and "<h2>Prototypes</h2>" not in page


def test_names_are_escaped(make_run: Callable[..., Run], manifest: Manifest) -> None:
    run = make_run(system="<b>&")
    page = write_report(run).read_text()
    checked(page)
    assert "<b>&" not in page.replace("<b>&amp;", "")


def test_leaked_results_are_marked(evaluated: Run) -> None:
    results = replace(read_evaluation(evaluated.folder), leaked=True)
    assert "LEAKED" in write_report(evaluated, results).read_text()
    assert "Leaked" in write_model_card(evaluated, results).read_text()


def test_model_card_says_what_it_is_for_and_how_good_it_is(evaluated: Run) -> None:
    card = write_model_card(evaluated).read_text()
    mean = evaluated.folder.read_json("evaluation/test.json")["auroc"]["mean"]
    for text in ("Research only", "Not a medical device", f"{mean:.2f}", "How to cite", "chance"):
        assert text in card


def test_model_card_tells_what_was_edited(run: Run, tmp_path: Path) -> None:
    made = run.edit(remove=[0, 4], require={1: 1.5}, out=tmp_path / "new").run
    assert made is not None
    card = (made.folder / "MODEL_CARD.md").read_text()
    assert re.search(
        rf"edited from the run `{run.name}` on \d{{4}}-\d\d-\d\d: prototypes 0 and 4", card
    )
    assert "prototype 1 required with a weight of at least 1.5 for its own class" in card
    assert "head fitted again; loss of the head" in card
    by_hand = made.edit(weights={0: {"negative": -2.0}}, out=tmp_path / "newer").run
    assert by_hand is not None
    card = (by_hand.folder / "MODEL_CARD.md").read_text()
    assert "from the run `new`" in card and "weights chosen by hand, head not fitted" in card
    assert "edited" not in write_model_card(run).read_text()


def test_model_card_tells_of_prunings_by_earlier_versions(run: Run, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(run.folder.path, old)
    facts = json.loads((old / "data.json").read_text())
    facts["pruned"] = [{"kind": "prune", "from": "first", "removed": [3], "validation": None}]
    (old / "data.json").write_text(json.dumps(facts))
    card = write_model_card(load_run(old)).read_text()
    assert "pruned from the run `first`: prototype 3 removed, head fitted again" in card


def test_model_card_without_evaluation(run: Run) -> None:
    assert "Not evaluated yet" in write_model_card(run, None).read_text()


def test_card_and_report_list_every_difference_from_the_paper(evaluated: Run) -> None:
    found = differences(evaluated.config, evaluated.start)
    assert len(found) > 10
    card = write_model_card(evaluated).read_text()
    page = html.unescape(re.sub("<[^>]+>", " ", write_report(evaluated).read_text()))
    assert f"This is not FPN-IAIA-BL as published: {len(found)} settings differ" in card
    assert "FPN-IAIA-BL, modified" in card and "FPN-IAIA-BL, modified" in page
    for each in found:
        assert f"| `{each.key}` | {each.paper} | {each.run} |" in card
        assert all(part in page for part in (each.key, each.paper, each.run))


def test_a_run_of_the_paper_to_the_letter_lists_none_and_bears_its_name(evaluated: Run) -> None:
    letter = replace(evaluated, config=load_config("fpn-iaia-bl", {"train.seed": 5}))
    assert difference_rows(letter) == []
    assert letter.system_title == "FPN-IAIA-BL"
    assert difference_words(letter).startswith("None: every setting is that of FPN-IAIA-BL")
    assert "ours: `model.neck.dim` (the paper gives no d" in difference_words(letter)


@pytest.mark.parametrize(
    ("preset", "authors"),
    [
        ("fpn-iaia-bl", "Yang"),
        ("protopyramid", "Yang"),
        ("iaia-bl", "Barnett"),
        ("protopnet", "Chen"),
        ("vgg16", "Simonyan"),
    ],
)
def test_a_run_cites_the_paper_of_its_own_system(evaluated: Run, preset: str, authors: str) -> None:
    run = replace(evaluated, config=load_config(preset))
    card, page = write_model_card(run).read_text(), write_report(run).read_text()
    cited = card.partition("## How to cite")[2], page.partition("<footer>")[2]
    for text in cited:
        assert authors in text
        assert ("Yang" in text) == (authors == "Yang")


def test_our_variant_bears_its_own_name(evaluated: Run) -> None:
    ours = replace(evaluated, config=load_config("protopyramid"))
    assert ours.system_title == "protopyramid"
    assert difference_title(ours) == "Differences from FPN-IAIA-BL"
    assert [row[0] for row in difference_rows(ours)] == [
        each.key for each in differences(ours.config)
    ]
