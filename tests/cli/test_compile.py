"""`predict --compile` and `evaluate --compile`: a network that cannot be compiled still predicts."""

import pytest

from protopyramid.cli.main import main


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """The sizes that were asked to be compiled; none can be."""
    sizes: list[int] = []

    def refuse(model, size):
        sizes.append(size)
        return "no C++ compiler is found"

    monkeypatch.setattr("protopyramid.inference.batches.compile_network", refuse)
    return sizes


def test_predict_says_why_it_does_not_compile_and_continues(
    asked, new_run, phantom_manifest, tmp_path, capsys
):
    run = new_run()
    image = str(next((phantom_manifest.parent / "images").iterdir()))
    plain, compiled = tmp_path / "plain.csv", tmp_path / "compiled.csv"
    assert main(["predict", str(run.folder.path), image, "--out", str(plain)]) == 0
    assert asked == [] and "--compile" not in capsys.readouterr().err
    arguments = ["predict", str(run.folder.path), image, "--compile", "--out", str(compiled)]
    assert main(arguments) == 0
    assert asked == [run.config.data.image_size]
    assert "no C++ compiler is found; the network runs uncompiled" in capsys.readouterr().err
    assert compiled.read_text() == plain.read_text()


def test_evaluate_asks_for_the_same(asked, new_run, phantom_manifest, capsys):
    run = new_run()
    arguments = ["evaluate", str(run.folder.path), "--data", str(phantom_manifest)]
    code = main([*arguments, "--split", "validation", "--bootstrap", "2", "--compile", "--force"])
    assert asked == [run.config.data.image_size]
    assert code == 0, capsys.readouterr().err
