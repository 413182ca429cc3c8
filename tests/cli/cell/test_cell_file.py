from __future__ import annotations

from pathlib import Path

import pytest

from fallow.shared.runtime.files.cell_file import CellFileError, load_cell_file, parse_cell_file

DEFAULT = Path(__file__).parents[3] / "deploy" / "cell.yaml"
TEXT = DEFAULT.read_text(encoding="utf-8")
TOO_MUCH = "all tenants together would be guaranteed 30416 of gpu, the pools have 24576 in 'main'"
LAST = TEXT[TEXT.index("name: robotics") :]


def line_of(text: str) -> int:
    return TEXT[: TEXT.index(text)].count("\n") + 1


def mistakes(text: str) -> list[str]:
    with pytest.raises(CellFileError) as raised:
        parse_cell_file(text, "cell.yaml")
    return str(raised.value).splitlines()


def test_the_default_file_has_one_cell_two_pools_and_five_tenants() -> None:
    file = load_cell_file(DEFAULT)
    assert [(cell.name, cell.ordinal) for cell in file.cells] == [("main", 0)]
    assert [pool.name for pool in file.cells[0].pools] == ["training", "inference"]
    assert len(file.tenants) == 5
    assert file.cells[0].queues[0].name == "default"


@pytest.mark.parametrize(
    ("right", "wrong", "at", "said"),
    [
        (
            "gpus: 16384",
            "gpus: many",
            "gpus: 16384",
            "cells[0].pools[0].gpus = 'many': must be a whole number",
        ),
        (
            "gpus_per_node: 8",
            "gpus_per_node: 0",
            "gpus_per_node: 8",
            "cells[0].pools[0].gpus_per_node = 0: must be at least 1",
        ),
        (
            "role: inference",
            "rolle: inference",
            "role: inference",
            (
                "cells[0].pools[1].rolle = 'inference': unknown field (did you mean role?); "
                "there are name, gpu_type, role, driver, gpus, gpus_per_node, nodes"
            ),
        ),
        (
            "role: inference",
            "ROLLE: inference",
            "role: inference",
            (
                "cells[0].pools[1].ROLLE = 'inference': unknown field (did you mean role?); "
                "there are name, gpu_type, role, driver, gpus, gpus_per_node, nodes"
            ),
        ),
        (
            "role: inference",
            "nodes: []",
            "role: inference",
            "cells[0].pools[1].nodes: must have at least 1 item",
        ),
        (
            "  - name: main\n",
            "  - main\n  - name: main\n",
            "  - name: main\n",
            "cells[0] = 'main': must be a mapping of fields",
        ),
        ("role: inference", "nodes: gpu-*", "role: inference", "cells[0].pools[1].nodes = 'gpu-*': must be a list"),
        ("name: vision", "name: language", "name: vision", "tenant 'language' stands twice"),
        (
            "guaranteed: 96",
            "guaranteed: 96, limit: 3",
            "guaranteed: 96",
            "tenants[2].quotas[0]: limit 3 is below guaranteed 96",
        ),
        (
            "name: speech",
            "pools: [attic]\n    name: speech",
            "name: speech",
            "tenants.speech.pools: 'attic' is not defined in this file",
        ),
        ("  - name: main\n", "  - nam: main\n", "  - name: main\n", "cells[0].name: is missing"),
        (
            "gpu_type: gpu, guaranteed: 96",
            "gpu_type: gpu, guaranteed: 30000",
            "name: main",
            f"cells.main.pools: {TOO_MUCH}",
        ),
        (
            LAST,
            LAST.replace("    quotas:", "    parent: search\n    quotas:").replace("64", "65"),
            LAST.partition("\n")[2],
            "tenants.search.quotas: guaranteed 64 of gpu: the children of 'search' are guaranteed 65 GPUs together",
        ),
        (
            "guaranteed: 64",
            "guaranteed: 64, reclaim: sometimes",
            "guaranteed: 64",
            "tenants[3].quotas[0].reclaim = 'sometimes': must be 'any', 'lower_priority' or 'never'",
        ),
    ],
    ids=[
        "a word for a number",
        "too small",
        "an unknown key",
        "an unknown key in capitals",
        "a pool without nodes",
        "a text for a mapping",
        "a text for a list",
        "a name twice",
        "a contradiction",
        "an unknown pool",
        "a key missing",
        "more guaranteed than there is",
        "more guaranteed than a parent has",
        "a word that means nothing",
    ],
)
def test_a_mistake_is_told_with_line_field_value_and_rule(right: str, wrong: str, at: str, said: str) -> None:
    assert mistakes(TEXT.replace(right, wrong, 1))[0] == f"cell.yaml: line {line_of(at)}: {said}"


@pytest.mark.parametrize(("name", "meant"), [("rm", ""), ("binpak", " (did you mean binpack?)")])
def test_an_unknown_placement_policy_is_told_with_those_that_there_are(name: str, meant: str) -> None:
    there = "best-fit, binpack, first-fit, spread, e-binpack, frag-aware, lifetime, e-spread"
    assert mistakes(TEXT.replace("placement: e-spread", f"placement: {name}")) == [
        (
            f"cell.yaml: line {line_of('placement: e-spread')}: cells[0].policy.placement = '{name}': "
            f"no such policy{meant}; there are {there}"
        )
    ]


def test_every_unknown_setting_of_a_policy_is_told_with_its_own_line_and_what_it_may_mean() -> None:
    right = ("reservations_max: 8", "placement: e-spread")
    wrong = TEXT.replace(right[0], "reservation_max: 8").replace(right[1], "zz: {a: 1}")
    told = {line.partition("; there are ")[0] for line in mistakes(wrong)}
    assert told == {
        (
            f"cell.yaml: line {line_of(right[0])}: cells[0].policy.reservation_max: "
            "unknown setting (did you mean reservations_max?)"
        ),
        f"cell.yaml: line {line_of(right[1])}: cells[0].policy.zz: unknown setting",
    }
    assert all("reservations_max" in line.partition("; there are ")[2] for line in mistakes(wrong))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "role: inference",
            "nodes: [ä]",
            (
                "cells[0].pools[1].nodes[0] = 'ä': must be 1 to 128 of a to z, 0 to 9, '.', '_', '-' and '*', "
                "beginning and ending with a letter, a digit or '*'"
            ),
        ),
        (
            "    # signing:",
            "    signing: {from_version: 1, keys: [{public: x}]}\n    # signing:",
            "cells[0].signing.keys[0].public: must be ed25519: and 32 bytes in base64, as `fallow cell key` prints it",
        ),
    ],
    ids=["a pattern of nodes", "a public key"],
)
def test_the_form_of_a_text_is_told_in_words(right: str, wrong: str, said: str) -> None:
    assert mistakes(TEXT.replace(right, wrong, 1))[0].endswith(f": {said}")


def test_a_key_that_stands_twice_is_a_mistake() -> None:
    line = line_of("ordinal: 0")
    said = mistakes(TEXT.replace("ordinal: 0", "ordinal: 0\n    ordinal: 1"))
    assert said == [f"cell.yaml: line {line + 1}: cells[0].ordinal: the key stands in line {line} already"]


def test_every_mistake_is_told_at_once() -> None:
    said = mistakes(TEXT.replace("gpus: 16384", "gpus: many").replace("gpus: 8192", "gpus: few"))
    assert [line.split(": ")[1] for line in said] == [f"line {line_of('gpus: 16384')}", f"line {line_of('gpus: 8192')}"]


def test_each_quota_of_a_gpu_type_that_no_pool_has_is_told() -> None:
    cells = "cells: [{name: main, ordinal: 0, pools: [{name: big, gpu_type: h100, gpus: 64}]}]\ntenants:\n"
    tenants = "  - {name: a, quotas: [{gpu_type: h100}]}\n  - {name: b, quotas: [{gpu_type: H100, limit: 8}]}\n"
    rule = "no pool has GPUs of this type, there are: h100"
    assert mistakes(cells + tenants + "  - {name: c, quotas: [{limit: 640}]}\n") == [
        f"cell.yaml: line 4: tenants[1].quotas[0].gpu_type = 'H100': {rule}",
        f"cell.yaml: line 5: tenants[2].quotas[0].gpu_type = 'gpu': {rule}",
    ]


def test_what_is_no_yaml_is_told_with_its_line() -> None:
    assert mistakes("cells: [\n")[0].startswith("cell.yaml: line 2: not YAML: ")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            r'"a\nforged: line 1\e[31m": 1',
            (
                r"cells[0].a\nforged: line 1\x1b[31m = 1: unknown field; "
                "there are name, ordinal, pools, queues, policy, signing"
            ),
        ),
        ("2020-01-01: 1", "cells[0]: the key 2020-01-01 is no text: put it in quotes"),
        ("? [a]\n    : 1", "cells[0]: the key a list is no text: put it in quotes"),
    ],
)
def test_a_strange_key_is_told_in_one_line(wrong: str, said: str) -> None:
    assert mistakes(TEXT.replace("ordinal: 0\n", f"ordinal: 0\n    {wrong}\n", 1)) == [
        f"cell.yaml: line {line_of('ordinal: 0') + 1}: {said}"
    ]


def test_several_keys_that_stand_twice_are_told_at_once() -> None:
    said = mistakes("cells: []\ncells: []\ntenants: []\ntenants: []\n")
    assert [line.split(": ")[1] for line in said] == ["line 2", "line 4"]


def test_what_is_no_mapping_is_told() -> None:
    rule = "cell.yaml: line 1: the file must be a mapping with cells and tenants"
    assert [mistakes(text)[0] for text in ("- a\n", "7", "")] == [
        f"{rule} (got {it})" for it in ("a list", "'7'", "nothing")
    ]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CellFileError, match=r"gone\.yaml: cannot be read: No such file or directory"):
        load_cell_file(tmp_path / "gone.yaml")
