"""The wheel holds all that the package needs, and works where the source tree is not."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import protopyramid

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


def test_the_wheel_has_presets_types_and_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for preset in ("fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"):
        assert f"protopyramid/config/presets/{preset}.toml" in names
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
        "import protopyramid, sys; print(protopyramid.__file__); "
        "print(protopyramid.load_config('fpn-iaia-bl').system)"
    )
    place = {"PYTHONPATH": str(target)}
    file, system = call(sys.executable, "-P", "-c", script, cwd=elsewhere, **place).splitlines()
    assert Path(file).is_relative_to(target)
    assert system == "fpn-iaia-bl"
    listed = call(sys.executable, "-P", "-m", "protopyramid", "presets", cwd=elsewhere, **place)
    assert len(listed.splitlines()) == 4


def test_the_public_names_are_listed_and_unknown_ones_refused() -> None:
    assert set(protopyramid.__all__) <= set(dir(protopyramid))
    assert protopyramid.UserError.__module__ == "protopyramid.errors"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = protopyramid.nothing
