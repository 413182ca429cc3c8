"""What is installed from a wheel has the files of `deploy/`, as the source tree has them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

TOP = Path(__file__).parents[2]
BUILDS = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def files_of_deploy() -> dict[str, tuple[bytes, bool]]:
    """The content of each file by its name in the package, and whether it is a program."""
    paths = [path for path in (TOP / "deploy").rglob("*") if path.is_file()]
    ours = {path.relative_to(TOP / "deploy"): path for path in paths if "__pycache__" not in path.parts}
    return {
        f"fallow/deploy/{name.as_posix()}": (path.read_bytes(), is_program(path.stat().st_mode))
        for name, path in ours.items()
    }


def is_program(mode: int) -> bool:
    return bool(mode & 0o100)


def built_from_the_tree(folder: Path) -> Path:
    """A wheel of a copy, which leaves nothing beside the sources."""
    copy = folder / "tree"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TOP / name, copy)
    for name in ("fallow", "services", "shared", "deploy"):
        shutil.copytree(TOP / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-c", BUILDS, str(folder)], cwd=copy, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_every_file_of_deploy_as_it_is(tmp_path: Path) -> None:
    with ZipFile(built_from_the_tree(tmp_path)) as wheel:
        held = {
            each.filename: (wheel.read(each), is_program(each.external_attr >> 16))
            for each in wheel.infolist()
            if each.filename.startswith("fallow/deploy/")
        }
    assert held == files_of_deploy()
