"""The wheel has everything the package needs and works without the source tree; dependencies agree."""

import ast
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

import protopyramid
from protopyramid.config import preset_names
from protopyramid.runs.archive import read_about
from protopyramid.runs.shelf import SHIPPED, shipped_names

PROJECT = Path(__file__).parent.parent


def call(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, so that nothing is left in the project."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = ["src", "pyproject.toml", "README.md", "LICENSE"]
    pattern = ["--exclude=*.egg-info", "--exclude=__pycache__"]
    subprocess.run(
        f"tar -C '{PROJECT}' {' '.join(pattern)} -cf - {' '.join(names)} | tar -C '{source}' -xf -",
        shell=True,
        check=True,
    )
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    call(*pip, "--wheel-dir", str(out), str(source), cwd=out)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_has_presets_recipes_types_and_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    config = PROJECT / "src/protopyramid/config"
    settings = {path.relative_to(config).as_posix() for path in config.rglob("*.toml")}
    assert {"presets/fpn-iaia-bl.toml", "recipes/cbis-margins.toml", "demo/demo.toml"} <= settings
    assert {f"protopyramid/config/{name}" for name in settings} <= set(names)
    assert "protopyramid/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith("tests") for name in names)


def test_the_wheel_has_every_module_and_the_version(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = PROJECT / "src" / "protopyramid"
    modules = {
        f"protopyramid/{path.relative_to(package).as_posix()}" for path in package.rglob("*.py")
    }
    assert modules <= names
    assert wheel.name.startswith(f"protopyramid-{protopyramid.__version__}-")


def test_the_installed_wheel_works_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    call(*pip, "--target", str(target), str(wheel), cwd=elsewhere)
    script = (
        "import protopyramid; print(protopyramid.__file__); "
        "print(protopyramid.load_config('cbis-margins').system)"
    )
    place = {"PYTHONPATH": str(target)}
    file, system = call(sys.executable, "-P", "-c", script, cwd=elsewhere, **place).splitlines()
    assert Path(file).is_relative_to(target)
    assert system == "protopyramid"
    listed = call(sys.executable, "-P", "-m", "protopyramid", "presets", cwd=elsewhere, **place)
    assert [line.split()[0] for line in listed.splitlines()] == preset_names()


@pytest.mark.parametrize("name", shipped_names())
def test_a_fresh_environment_explains_an_image_with_each_shipped_model(
    wheel: Path, tmp_path: Path, name: str
) -> None:
    """A new environment without network: our wheel is installed, its libraries are those at hand."""
    venv.create(tmp_path / "fresh", with_pip=False, symlinks=True)
    python = str(tmp_path / "fresh" / "bin" / "python")
    place = call(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    )
    site = Path(place.strip())
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    call(*pip, "--target", str(site), str(wheel), cwd=tmp_path)
    (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    image = tmp_path / "lesion.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 260), np.uint8)).save(image)
    surroundings = {"PYTHONPATH": "", "PROTOPYRAMID_CACHE": str(tmp_path / "cache")}
    where = "import protopyramid; print(protopyramid.__file__)"
    assert Path(
        call(python, "-P", "-c", where, cwd=tmp_path, **surroundings).strip()
    ).is_relative_to(site)
    out = str(tmp_path / "why")
    arguments = ["-m", "protopyramid", "explain", name, str(image), "--out", out]
    call(python, "-P", *arguments, cwd=tmp_path, **surroundings)
    content = json.loads((tmp_path / "why" / "lesion.json").read_text())
    for label, logit in content["logits"].items():
        total = sum(part["contributions"][label] for part in content["prototypes"])
        assert total == pytest.approx(logit, abs=1e-3)


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_model_is_small_has_a_licence_and_shows_no_patient(name: str) -> None:
    path = SHIPPED / f"{name}.zip"
    about = read_about(path)
    assert about.name == name
    assert path.stat().st_size <= 20_000_000
    assert about.licence and about.summary
    assert "MODEL_CARD.md" in about.files
    if name != "phantoms":  # phantoms are drawn, everything else is of patients
        assert not about.pictures
        assert not [each for each in about.files if each.endswith(".png")]


def test_the_public_names_are_listed_and_unknown_ones_refused() -> None:
    assert set(protopyramid.__all__) <= set(dir(protopyramid))
    assert protopyramid.UserError.__module__ == "protopyramid.errors"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = protopyramid.nothing


def declared(extras: Iterable[str] = ()) -> list[Requirement]:
    """What pyproject.toml asks for, with some extras."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [Requirement(text) for text in project["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            own = requirement.name == "protopyramid"
            found += declared(requirement.extras) if own else [requirement]
    return found


def needed(requirements: list[Requirement]) -> set[str]:
    """The names of all packages that some requirements lead to, by what is installed."""
    seen: set[tuple[str, str]] = set()
    waiting = [(each.name, extra) for each in requirements for extra in ("", *each.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (canonicalize_name(name), extra) in seen:
            continue
        seen.add((canonicalize_name(name), extra))
        for below in map(Requirement, requires(name) or []):
            if below.marker is None or below.marker.evaluate({"extra": extra}):
                waiting += [(below.name, each) for each in ("", *below.extras)]
    return {name for name, _ in seen}


def test_the_constraints_pin_what_the_development_needs_and_nothing_else() -> None:
    lines = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    wanted = needed(declared(["dev"]))
    assert pinned - wanted == set()
    if sys.version_info[:2] == (3, 11) and sys.platform == "linux":  # where they were recorded
        assert wanted - pinned == set()


def test_every_library_that_is_imported_is_declared() -> None:
    extras = ["dicom", "export", "reader", "tensorboard", "backbones"]
    modules = {canonicalize_name(each.name) for each in declared(extras)}
    known = {"PIL": "pillow", "pydantic_core": "pydantic", "mpl_toolkits": "matplotlib"}
    found = set()
    for path in (PROJECT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            found |= {name.partition(".")[0] for name in names}
    foreign = found - set(sys.stdlib_module_names) - {"protopyramid"}
    undeclared = {n for n in foreign if canonicalize_name(known.get(n, n)) not in modules}
    assert undeclared == set()
