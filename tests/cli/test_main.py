"""The command line answers at once, and every end has its exit code and its one line."""

import ast
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer

from protopyramid import __version__
from protopyramid.cli import main as cli
from protopyramid.errors import UserError

HEAVY = ["torch", "numpy", "matplotlib", "pydantic", "PIL", "rich", "lightning_fabric"]
LIGHT = {
    "typer",
    "protopyramid",
    "protopyramid.cli",
    "protopyramid.errors",
    "protopyramid.utils.quiet",
    *sys.stdlib_module_names,
}


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "protopyramid", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        [],
        ["--version"],
        ["--hepl"],
        ["data", "phantom", "--sed", "1"],
        ["data", "--help"],
    ],
)
def test_help_and_slips_import_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import json, sys; from protopyramid.cli.main import main; "
        f"main({arguments!r}); print(); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert loaded.isdisjoint(HEAVY)


def test_no_module_of_the_command_line_imports_anything_heavy_at_its_top() -> None:
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = str(node.module)
                own = module.startswith("protopyramid.cli")
                whole = module if module.startswith("protopyramid") else module.partition(".")[0]
                names = ["protopyramid.cli" if own else whole]
            assert set(names) <= LIGHT, f"{path.name}, line {node.lineno}"


def test_the_package_itself_imports_nothing_heavy() -> None:
    script = "import json, sys; import protopyramid; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert set(json.loads(done.stdout)).isdisjoint([*HEAVY, "typer"])


def test_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"protopyramid {__version__}\n")


def test_no_arguments_show_the_help() -> None:
    done = run()
    assert done.returncode == 0
    assert "Commands:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--hepl"], "No such option: --hepl"),
        (["dta"], "Did you mean 'data'?"),
        (["data", "phantom"], "Missing argument 'DIR'"),
        (["data", "phantom", "--seed", "x", "d"], "'--seed'"),
        (["data", "phantom", "--seed", "-1", "d"], "'--seed'"),
        (["presets", "show"], "Missing argument 'NAME'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: list[str], part: str, capsys) -> None:
    assert cli.main(arguments) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("protopyramid: error: ")
    assert part in error
    assert "; try 'protopyramid" in error


def app_that_raises(problem: BaseException, monkeypatch) -> None:
    app = typer.Typer()

    @app.callback(invoke_without_command=True)
    def command() -> None:
        raise problem

    monkeypatch.setattr(cli, "app", app)


@pytest.mark.parametrize(
    ("problem", "code", "stderr"),
    [
        (UserError("a.csv: no column"), 2, "protopyramid: error: a.csv: no column\n"),
        (UserError("one\ntwo"), 2, "protopyramid: error: one\\ntwo\n"),
        (MemoryError(), 2, f"protopyramid: error: {cli.NO_MEMORY}\n"),
        (FileNotFoundError(2, "gone", "/x"), 2, "protopyramid: error: /x: gone\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "protopyramid: error: /x: Permission denied\n"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(3), 3, ""),
    ],
)  # fmt: skip
def test_an_end_has_its_code_and_its_line(problem, code, stderr, monkeypatch, capsys) -> None:
    app_that_raises(problem, monkeypatch)
    assert cli.main([]) == code
    assert capsys.readouterr().err == stderr


@pytest.mark.parametrize("problem", [RuntimeError("ours"), OSError("ours")])
def test_a_bug_of_ours_shows_its_traceback_and_exits_1(problem, monkeypatch, capsys) -> None:
    app_that_raises(problem, monkeypatch)
    assert cli.main([]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m protopyramid presets show iaia-bl | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_warning_of_our_own_code_is_one_line(capsys) -> None:
    ours = str(cli.PACKAGE / "data" / "manifest.py")
    with cli.one_line_warnings():
        warnings.simplefilter("always")
        warnings.warn_explicit("class x has\n3 patients", UserWarning, ours, 1)
    assert capsys.readouterr().err == "protopyramid: warning: class x has\\n3 patients\n"


def test_a_warning_is_said_once_wherever_it_comes_from(capsys) -> None:
    places = [str(cli.PACKAGE / name) for name in ("api.py", "evaluation/evaluate.py")]
    with cli.one_line_warnings():
        warnings.simplefilter("always")
        for line, text in enumerate(["at the border", "at the border", "below chance"]):
            warnings.warn_explicit(text, UserWarning, places[line % 2], line)
    said = capsys.readouterr().err.splitlines()
    assert said == [f"protopyramid: warning: {text}" for text in ("at the border", "below chance")]


def test_a_warning_of_other_code_keeps_its_place() -> None:
    script = (
        "import warnings; from protopyramid.cli.main import one_line_warnings\n"
        "with one_line_warnings():\n"
        "    warnings.warn_explicit('strange', UserWarning, '/elsewhere/lib.py', 7)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.startswith("/elsewhere/lib.py:7: UserWarning: strange")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [(["explain", "", "a.png"], "argument 2"), (["evaluate", "run", "--data", ""], "--data")],
)
def test_an_empty_argument_is_refused_and_not_the_current_folder(
    arguments: list[str], what: str, capsys
) -> None:
    assert cli.main(arguments) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"protopyramid: error: {what}: expected a value, got an empty text")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    script = run("completion", shell)
    assert script.returncode == 0 and "_PROTOPYRAMID_COMPLETE" in script.stdout
    asked = {"COMP_WORDS": "protopyramid faith", "COMP_CWORD": "1"}
    asked |= {
        "_TYPER_COMPLETE_ARGS": "protopyramid faith",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    environment = {**os.environ, **asked, "_PROTOPYRAMID_COMPLETE": f"complete_{shell}"}
    assert "faithfulness" in run(env=environment).stdout
