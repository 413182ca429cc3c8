"""The house rules as tests: what can be found by reading the code is found here, not in a review."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = sorted(path for top in ("fallow", "services", "shared") for path in (ROOT / top).rglob("*.py"))
ALL_PYTHON = [*CODE, *sorted((ROOT / "tests").rglob("*.py"))]
LINES_PER_FUNCTION_MAX = 60
MODULES_PER_FOLDER_MAX = 15

PURE = re.compile(
    r"services/[^/]+/(policy/.*|policy\.py|service\.py)|services/placement/(fit|search|owners|queue|lifecycle|decision|requests|explain)/.*|"
    r"fallow/simulator/(?!shells/|world\.py).*|shared/(cluster|events|log/machine)/.*"
)
IMPURE_MODULES = frozenset(
    {
        *("aiokafka", "confluent_kafka", "faststream", "httpx", "redis", "structlog"),
        *("asyncio", "multiprocessing", "signal", "subprocess", "threading"),
        *("logging", "os", "random", "secrets", "socket", "tempfile", "time", "uuid"),
    }
)
KEPT_BYTES_MAX = 400_000
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc"})

# What is banned, and what stands in for it.
BANNED_CALLS = {
    "datetime.now": "the cell's clock",
    "datetime.utcnow": "the cell's clock",
    "datetime.datetime.now": "the cell's clock",
    "uuid.uuid4": "an id made from what it names",
    "uuid4": "an id made from what it names",
    "time.sleep": "asyncio.sleep",
    "mock.patch": "a fake that passes the contract of the real thing",
    "patch": "a fake that passes the contract of the real thing",
    "publish_batch": "Log.publish: a batch ignores the keys of its messages",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.lineno, node.module.split(".")[0]


def banned_calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            last = name.rsplit(".", 1)[-1]
            reason = BANNED_CALLS.get(name) or (BANNED_CALLS["publish_batch"] if last == "publish_batch" else None)
            if reason:
                yield f"line {node.lineno}: {name} -> use {reason}"


def swallowing_handlers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            empty = all(isinstance(line, ast.Pass | ast.Continue) or is_ellipsis(line) for line in node.body)
            if node.type is None:
                yield f"line {node.lineno}: a bare except"
            elif empty and isinstance(node.body[0], ast.Pass | ast.Expr):
                yield f"line {node.lineno}: an except that does nothing"


def is_ellipsis(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and line.value.value is Ellipsis


def long_functions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LINES_PER_FUNCTION_MAX:
                yield f"line {node.lineno}: {node.name} has {lines} lines, {LINES_PER_FUNCTION_MAX} are allowed"


def texts_in_a_row(tree: ast.Module) -> Iterator[str]:
    """A docstring explains the name above it: one below another docstring explains nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for above, line in pairwise(node.body):
                if is_text(above) and is_text(line):
                    yield f"line {line.lineno}: a docstring below a docstring"


def is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def found_in(paths: list[Path], rule: Callable[[ast.Module], Iterator[str]]) -> list[str]:
    return [f"{name_of(path)}, {fault}" for path in paths for fault in rule(tree_of(path))]


def prints(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) == "print":
            yield f"line {node.lineno}: print"


def impure_imports(tree: ast.Module) -> Iterator[str]:
    for line, module in imported_modules(tree):
        if module in IMPURE_MODULES:
            yield f"line {line}: {module}"


def test_all_code_keeps_the_rules_of_the_house() -> None:
    """No long function, no docstring out of place, no swallowed exception, no call that has a better one."""
    rules = (long_functions, texts_in_a_row, swallowing_handlers, banned_calls)
    assert [fault for rule in rules for fault in found_in(ALL_PYTHON, rule)] == []


def test_only_the_command_line_prints() -> None:
    assert found_in([path for path in CODE if not name_of(path).startswith("fallow/")], prints) == []


def test_pure_code_imports_nothing_impure() -> None:
    pure = [path for path in CODE if PURE.fullmatch(name_of(path))]
    assert pure
    assert found_in(pure, impure_imports) == []


def test_a_file_is_named_after_its_idea_and_says_it() -> None:
    vague = [name_of(path) for path in CODE if VAGUE_NAMES & set(path.relative_to(ROOT).with_suffix("").parts)]
    assert vague == []
    modules = [path for path in CODE if path.name != "__init__.py"]
    assert [name_of(path) for path in modules if not ast.get_docstring(tree_of(path))] == []


def test_no_program_or_package_of_others_is_kept_among_the_sources() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kept = [ROOT / name for name in listed.splitlines()]
    large = [name_of(path) for path in kept if path.is_file() and path.stat().st_size > KEPT_BYTES_MAX]
    assert large == []


def test_nothing_unfinished_stays() -> None:
    markers = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
    assert [name_of(path) for path in ALL_PYTHON if markers.search(path.read_text(encoding="utf-8"))] == []


def test_lock_files_pin_hashes_and_name_no_registry_and_the_image_gets_what_was_tested() -> None:
    pins = {path.name: pinned_in(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("*.lock"))}
    assert pins["requirements-run.lock"]
    assert pins["requirements-run.lock"] <= pins["requirements.lock"]


def pinned_in(lock: str) -> set[str]:
    """Each `name==version` of a lock file, all of which have a hash."""
    pinned = re.findall(r"^([a-z0-9][\w.-]*==[^ \\\n]+)", lock, re.MULTILINE)
    hashes = re.findall(r"^[a-z0-9][\w.-]*==[^\\\n]*\\\n    --hash=sha256:", lock, re.MULTILINE)
    assert pinned
    assert len(pinned) == len(hashes)
    assert not re.search(r"://|--(extra-)?index|--find-links|file:", lock)
    return set(pinned)


def test_the_rules_find_what_they_forbid() -> None:
    bad = ast.parse(
        "try:\n    uuid4()\nexcept ValueError:\n    pass\ntry:\n    x.publish_batch()\nexcept:\n    raise\n"
    )
    assert len(list(swallowing_handlers(bad))) == 2
    assert len(list(banned_calls(bad))) == 2
    assert len(list(long_functions(ast.parse("def f():\n" + "    x = 1\n" * 70)))) == 1


def test_no_folder_holds_more_modules_than_one_takes_in_at_a_glance() -> None:
    held = Counter(name_of(path.parent) for path in ALL_PYTHON if path.name != "__init__.py")
    assert {folder: count for folder, count in held.items() if count > MODULES_PER_FOLDER_MAX} == {}
