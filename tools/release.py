"""Release a version on this machine: ``python -m tools.release 0.2.0``, which `make release VERSION=0.2.0` calls.

The version is written once, in ``pyproject.toml``; the tags of our images follow it. If a step fails, files and
repository stay as they were. Nothing is pushed.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
# Files that name our images by their version.
_IMAGES = (
    "docker-compose.yml",
    "deploy/kubernetes/service.yaml",
    "deploy/kubernetes/ray-cluster.yaml",
    "docs/cluster.md",
)
_FORMATS = "docs/formats.md"
_PACKAGES = ("clipless", "sweeper", "dashboards")
_VERSION = r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)"
_DECLARED = re.compile(rf'^version = "({_VERSION})"$', flags=re.MULTILINE)

Builder = Callable[[Path, Path, Sequence[str]], None]
Checker = Callable[[Path, str], None]


class ReleaseError(Exception):
    """What keeps a version from being released, in one sentence."""


@dataclass(frozen=True, slots=True)
class Release:
    """What a release has made.

    Attributes:
        files: wheel, source archive and notes, in ``dist/``.
        tag: annotated, in the local repository.
    """

    files: tuple[Path, ...]
    tag: str


def notes_of(changelog: str, version: str) -> str:
    """Return the section of a version in the CHANGELOG, without its heading.

    Raises:
        ReleaseError: there is none with a date, it is empty, or `Unreleased` still has entries.
    """
    sections: dict[str, str] = dict(
        re.findall(r"^## \[([^\]]+)\](.*?)(?=^## \[|\Z)", changelog, flags=re.MULTILINE | re.DOTALL)
    )
    if version not in sections:
        raise ReleaseError(f"Expected a section [{version}] in CHANGELOG.md, got {', '.join(sections)}; write it")
    heading, _, text = sections[version].partition("\n")
    _check_date(heading, version)
    if not text.strip():
        raise ReleaseError(f"Expected entries below [{version}] in CHANGELOG.md, got none; write them")
    if re.search(r"^- ", sections.get("Unreleased", ""), flags=re.MULTILINE):
        raise ReleaseError(f"Expected no entries below [Unreleased] in CHANGELOG.md; move them to [{version}]")
    return text.strip() + "\n"


def _check_date(heading: str, version: str) -> None:
    found = re.fullmatch(r" - (\d{4}-\d{2}-\d{2})", heading)
    try:
        date.fromisoformat(found.group(1) if found else "")
    except ValueError:
        raise ReleaseError(
            f"Expected '## [{version}] - YYYY-MM-DD' in CHANGELOG.md, got '## [{version}]{heading}'; add the day"
        ) from None


def check_formats(page: str, version: str) -> None:
    """Raise ReleaseError if the table of file formats has no row for a version."""
    if not re.search(rf"^\| {re.escape(version)} \|", page, flags=re.MULTILINE):
        raise ReleaseError(f"Expected a row for {version} in {_FORMATS}, got none; say which formats it writes")


def set_version(root: Path, version: str) -> dict[Path, str]:
    """Write a version into ``pyproject.toml`` and into the tags of our images; return the texts that were replaced."""
    project = root / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    found = _DECLARED.search(text)
    if found is None:
        raise ReleaseError('Expected a line version = "X.Y.Z" in pyproject.toml, got none; add it')
    if found.group(1) == version:
        return {}
    before = {path: path.read_text(encoding="utf-8") for path in (project, *(root / name for name in _IMAGES))}
    old = re.escape(found.group(1))
    for path, content in before.items():
        content = _DECLARED.sub(f'version = "{version}"', content) if path == project else content
        content = re.sub(rf"(sweeper:|SWEEPER_VERSION:-){old}(?=[-}}])", rf"\g<1>{version}", content)
        path.write_text(re.sub(rf"(?<=\| `){old}(?=` \|)", version, content), encoding="utf-8")
    return before


def build(root: Path, folder: Path, pip_args: Sequence[str]) -> None:
    """Build wheel and source archive into a folder, in an environment that holds nothing but the build backend."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as made:
        python = _environment(Path(made))
        _run([python, "-m", "pip", "install", "--quiet", *pip_args, *project["build-system"]["requires"]], root)
        _run([python, "-m", "hatchling", "build", "--directory", str(folder)], root)


def check_wheel(wheel: Path, version: str) -> None:
    """Install a wheel alone into a fresh environment, without an index, and import every package from there.

    What the packages depend on is borrowed from the environment that runs this.
    """
    with tempfile.TemporaryDirectory() as made:
        root = Path(made).resolve()
        python = _environment(root)
        _run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)], root)
        (site,) = root.glob("lib/python*/site-packages")
        borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
        (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed), encoding="utf-8")
        names = ", ".join(_PACKAGES)
        found = _run([python, "-I", "-c", f"import {names}\nfor p in ({names}): print(p.__file__)"], root).split("\n")
        if not all(Path(path).is_relative_to(root) for path in found):
            raise ReleaseError(f"Expected {names} from {wheel.name}, got {' '.join(found)}; the wheel lacks a package")
        said = _run([str(root / "bin" / "sweeper"), "--version"], root)
        if version not in said.split():
            raise ReleaseError(f"Expected `sweeper --version` to say {version}, got {said!r}; build the wheel again")


def release(root: Path, version: str, *, builder: Builder = build, checker: Checker = check_wheel) -> Release:
    """Release a version: check, write the version, build, try the wheel, write the notes, commit, tag.

    Raises:
        ReleaseError: what is missing, and how to mend it.
    """
    tag = f"v{version}"
    _check_repository(root, version, tag)
    notes = notes_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    check_formats((root / _FORMATS).read_text(encoding="utf-8"), version)
    before = set_version(root, version)
    try:
        files = _build_files(root, version, notes, builder, checker)
        if before:
            changed = [str(path.relative_to(root)) for path in before]
            _git(root, "commit", "--quiet", "--message", f"release: version {version}", "--", *changed)
    except BaseException:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")
        raise
    _git(root, "tag", "--annotate", "--cleanup=verbatim", "--message", f"Sweeper {version}\n\n{notes}", tag)
    return Release(files=files, tag=tag)


def _build_files(root: Path, version: str, notes: str, builder: Builder, checker: Checker) -> tuple[Path, ...]:
    folder = root / "dist"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("sweeper-*"):
        old.unlink()
    builder(root, folder, sys.argv[2:])
    files = (folder / f"sweeper-{version}-py3-none-any.whl", folder / f"sweeper-{version}.tar.gz")
    for path in files:
        if not path.is_file():
            raise ReleaseError(f"Expected {path.name} in dist/, got none; see what the build printed")
    checker(files[0], version)
    written = folder / f"sweeper-{version}.md"
    written.write_text(notes, encoding="utf-8")
    return (*files, written)


def _check_repository(root: Path, version: str, tag: str) -> None:
    if not re.fullmatch(_VERSION, version):
        raise ReleaseError(f"Expected a version X.Y.Z, got {version!r}; for example make release VERSION=0.2.0")
    changed = _git(root, "status", "--porcelain")
    if changed:
        raise ReleaseError(f"Expected a clean working tree, got {changed.splitlines()[0].strip()}; commit or stash it")
    if _git(root, "tag", "--list", tag):
        raise ReleaseError(f"Expected no tag {tag}, got one; choose the next version")


def _environment(folder: Path) -> str:
    _run([sys.executable, "-m", "venv", str(folder)], folder)
    return str(folder / "bin" / "python")


def _git(root: Path, *words: str) -> str:
    return _run(["git", *words], root)


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a command, without our own packages on its path; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise ReleaseError(f"Expected `{' '.join(command[:4])} ...` to succeed, got: {told}")
    return done.stdout.strip()


def main() -> None:
    """Release the version that the first argument names; others go to pip."""
    try:
        made = release(_ROOT, sys.argv[1] if len(sys.argv) > 1 else "")
    except ReleaseError as error:
        sys.exit(str(error))
    sys.stdout.write("".join(f"{path.relative_to(_ROOT)}\n" for path in made.files))
    sys.stdout.write(f"tag {made.tag}, here alone: git push origin HEAD {made.tag}\n")


if __name__ == "__main__":
    main()
