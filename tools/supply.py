"""What protopyramid is made of: known vulnerabilities, licences, hashes and the list of parts (SBOM).

python -m tools.supply audit   vulnerabilities and licences of pinned packages
python -m tools.supply lock                      write requirements.lock: constraints.txt with hashes
python -m tools.supply sbom --out FILE           write the SBOM of this installation, in CycloneDX 1.5
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "requirements.lock"
NAME = "protopyramid"
AUDIT = "pip-audit==2.10.1"  # in an environment of its own: its parts are not ours
AUDIT_FOLDER = ROOT / ".audit"
# Licences that may come with the package and its extras: permissive ones, and those whose conditions hold for
# changed files of the library alone (MPL). No GPL, AGPL or SSPL.
ALLOWED = (
    "MIT", "MIT-CMU", "BSD", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Apache", "Apache-2.0", "ISC", "PSF-2.0",
    "Python Software Foundation", "HPND", "Zlib", "MPL-2.0", "Mozilla Public", "3-Clause BSD",
    "Unlicense", "CC0-1.0",
    "Apache-2.0 WITH LLVM-exception", "Matplotlib", "BSL-1.0", "LicenseRef-Matplotlib", "CNRI-Python",
)  # fmt: skip
# Packages that do not say their licence in a form that a program reads; read in their files instead.
READ_BY_HAND = {
    "scipy": "BSD-3-Clause",
    "torch": "BSD-3-Clause",
    "numpy": "BSD-3-Clause",
    "matplotlib": "PSF-2.0",
    "python-gdcm": "BSD-3-Clause",
    "pillow": "MIT-CMU",
    "flatbuffers": "Apache-2.0",
    "mpmath": "BSD-3-Clause",
    "axe-playwright-python": "MIT",
}
GPL_EXCEPTION = re.compile(r"\b[AL]?GPL|\bSSPL", re.IGNORECASE)


def pins(path: Path = CONSTRAINTS) -> dict[str, str]:
    """The pinned versions of constraints.txt, by canonical name."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)==([^\s;#]+)", line):
            found[canonicalize_name(match[1])] = match[2]
    return found


# -- licences ------------------------------------------------------------------------------------
def licence_of(package: metadata.PackageMetadata, name: str) -> str:
    """The licence that a package declares, in its own words; "" where it declares none."""
    if name in READ_BY_HAND:
        return READ_BY_HAND[name]
    expression = package.get("License-Expression")
    if expression:
        return str(expression)
    kinds = [
        each.rpartition(" :: ")[2]
        for each in package.get_all("Classifier") or []
        if "License ::" in each
    ]
    kinds = [kind for kind in kinds if kind != "OSI Approved"]
    if kinds:
        return " OR ".join(kinds)
    text = str(package.get("License") or "").strip().splitlines()
    return text[0][:60] if text else ""


def is_allowed(licence: str) -> bool:
    """Whether one of the licences offered (OR), or all of those that hold together (AND), may be used.

    >>> is_allowed("MIT OR GPL-3.0"), is_allowed("GPL-3.0-only"), is_allowed("Apache-2.0 AND MIT")
    (True, False, True)
    """
    offered = re.split(r"\s+OR\s+|\s*/\s*", licence.replace("(", "").replace(")", ""))
    return any(all(_known(part) for part in re.split(r"\s+AND\s+|;|, ", each)) for each in offered)


def _known(part: str) -> bool:
    plain = re.sub(r"^the ", "", part.strip(), flags=re.IGNORECASE)
    if not plain or GPL_EXCEPTION.search(plain):
        return False
    return any(plain.lower().startswith(allowed.lower()) for allowed in ALLOWED)


def check_licences() -> int:
    """Print the licence of every pinned package that is installed; 1 where one is not on the list."""
    wrong = []
    for name in pins():
        try:
            package = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            print(f"{name:28} not installed here")
            continue
        licence = licence_of(package, name)
        good = is_allowed(licence)
        print(f"{name:28} {licence or 'not declared'}{'' if good else '   <- not on the list'}")
        wrong += [] if good else [name]
    if wrong:
        print(f"licences to look at: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


# -- vulnerabilities -----------------------------------------------------------------------------
def check_vulnerabilities() -> int:
    """Ask pip-audit about the pinned versions; 1 where one is known to be vulnerable.

    Where it cannot be installed or cannot ask its database, one line says so, and 0 is returned.
    """
    program = audit_program()
    if program is None:
        print(f"{AUDIT} could not be installed: vulnerabilities were not looked up")
        return 0
    words = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(
        [str(program), *words, "--requirement", str(CONSTRAINTS)], capture_output=True, text=True
    )
    packages = audited(done.stdout)
    left_out = [each for each in packages if "skip_reason" in each]
    if len(left_out) == len(packages):
        reason = left_out[0]["skip_reason"] if left_out else done.stderr.strip()[-200:]
        print(
            f"pip-audit could not ask its database: vulnerabilities were not looked up ({reason})"
        )
        return 0
    found = vulnerabilities(packages)
    for line in found:
        print(line, file=sys.stderr)
    asked = len(packages) - len(left_out)
    print(
        f"known vulnerabilities of {asked} pinned versions: {len(found)}; {len(left_out)} not looked up"
    )
    return 1 if found else 0


def audit_program() -> Path | None:
    """pip-audit: the one that is installed, or one in an environment of its own; None without either."""
    installed = shutil.which("pip-audit")
    if installed:
        return Path(installed)
    program = AUDIT_FOLDER / "bin/pip-audit"
    if not program.is_file():
        commands = (
            [sys.executable, "-m", "venv", str(AUDIT_FOLDER)],
            [str(AUDIT_FOLDER / "bin/python"), "-m", "pip", "install", "--quiet", AUDIT],
        )
        for command in commands:
            if subprocess.run(command, capture_output=True).returncode:
                return None
    return program


def audited(output: str) -> list[dict[str, Any]]:
    """The packages in pip-audit's JSON; none where it is not an answer.

    >>> audited("")
    []
    """
    try:
        found = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return []
    return [each for each in found if isinstance(each, dict)]


def vulnerabilities(packages: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is known of packages, one line each.

    >>> known = {"id": "PYSEC-1", "fix_versions": ["2"]}
    >>> vulnerabilities([{"name": "a", "version": "1", "vulns": [known]}, {"name": "b", "skip_reason": "x"}])
    ['a 1: PYSEC-1, mended in 2']
    """
    return [
        f"{each['name']} {each['version']}: {known['id']}"
        + (f", mended in {', '.join(known['fix_versions'])}" if known["fix_versions"] else "")
        for each in packages
        for known in each.get("vulns", ())
    ]


# -- hashes --------------------------------------------------------------------------------------
def write_lock() -> int:
    """Ask pip which files it would install, and write their SHA-256 beside their versions."""
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-",
        "-c", str(CONSTRAINTS), f"{ROOT}[dev]",
    ]  # fmt: skip
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    LOCK.write_text(lock_text(report), encoding="utf-8")
    print(f"{LOCK.name}: {sum(1 for _ in _hashed(report))} packages")
    return 0


def lock_text(report: Mapping[str, Any]) -> str:
    """The lock file of pip's report: names, versions and hashes; no address of a registry."""
    lines = [
        "# Hashes of the files that constraints.txt leads pip to on Linux (x86-64, Python 3.11): make lock.",
        "# pip install --require-hashes --no-deps -r requirements.lock, then pip install --no-deps -e .",
    ]
    lines += [
        f"{name}=={version} --hash=sha256:{digest}"
        for name, version, digest in sorted(_hashed(report))
    ]
    return "\n".join(lines) + "\n"


def _hashed(report: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for item in report["install"]:
        facts = item["metadata"]
        hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
        if canonicalize_name(facts["name"]) != NAME:
            yield canonicalize_name(facts["name"]), facts["version"], hashes["sha256"]


def locked_hashes() -> dict[str, str]:
    """The SHA-256 of each package in requirements.lock; {} without one."""
    if not LOCK.is_file():
        return {}
    found = re.findall(r"^(\S+)==\S+ --hash=sha256:([0-9a-f]{64})$", LOCK.read_text(), re.MULTILINE)
    return dict(found)


# -- the list of parts ---------------------------------------------------------------------------
def closure(name: str = NAME) -> dict[str, set[str]]:
    """Every installed package that a package needs, with all its extras, and what each needs itself."""
    found: dict[str, set[str]] = {}
    waiting = [(canonicalize_name(name), True)]
    while waiting:
        each, extras = waiting.pop()
        if each in found:
            continue
        try:
            requirements = metadata.requires(each) or []
        except metadata.PackageNotFoundError:
            continue
        found[each] = set()
        for text in requirements:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not (
                marker.evaluate({"extra": ""}) or (extras and "extra" in str(marker))
            ):
                continue
            other = canonicalize_name(requirement.name)
            if other != each:
                found[each].add(other)
                waiting.append((other, bool(requirement.extras)))
    return {each: {other for other in needs if other in found} for each, needs in found.items()}


def bill_of_materials() -> dict[str, Any]:
    """The SBOM of this installation in CycloneDX 1.5; the same parts give the same content."""
    parts, hashes = closure(), locked_hashes()
    components = [_component(name, hashes.get(name)) for name in sorted(parts)]
    own = next(each for each in components if each["name"] == NAME)
    content: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "type": "application"}},
        "components": [each for each in components if each is not own],
        "dependencies": [
            {
                "ref": _reference(name),
                "dependsOn": sorted(_reference(other) for other in parts[name]),
            }
            for name in sorted(parts)
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {**content, "serialNumber": f"urn:uuid:{serial}"}


def _reference(name: str) -> str:
    return f"pkg:pypi/{name}@{metadata.version(name)}"


def _component(name: str, digest: str | None) -> dict[str, Any]:
    licence = licence_of(metadata.metadata(name), name)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _reference(name),
        "name": name,
        "version": metadata.version(name),
        "purl": _reference(name),
    }
    if licence:
        component["licenses"] = [{"license": {"name": licence}}]
    if digest:
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return component


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.supply", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("audit", "lock", "sbom"))
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / f"{NAME}.cdx.json")
    options = parser.parse_args(arguments)
    if options.what == "lock":
        return write_lock()
    if options.what == "audit":
        return check_licences() | check_vulnerabilities()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(bill_of_materials(), indent=2) + "\n", encoding="utf-8")
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
