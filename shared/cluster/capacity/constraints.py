"""What a job asks of its nodes beside room: labels that they must have, taints that it tolerates, to be alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from fallow.shared.cluster.model.node import Node, is_in_zone
from fallow.shared.events.fields.values import JobKind, JobSpec, NodeSpec

IN_ZONE = "of the inference zone, which training leaves to services"


class Needs(NamedTuple):
    """The constraints of a job, in a form that is equal for jobs whose nodes are the same. `shut` are nodes that it may
    not use now whatever they are; with `outside_zone` it leaves the inference zone to services.
    """

    rules: tuple[str, ...]
    tolerations: tuple[str, ...]
    exclusive: bool
    shut: tuple[str, ...] = ()
    outside_zone: bool = False


@lru_cache(maxsize=4096)
def parsed(rule: str) -> tuple[str, tuple[str, ...], bool]:
    """A rule's key, its values (none: any), and whether it says what must not be."""
    key, has_values, values = rule.partition("=")
    wanted = tuple(values.split("|")) if has_values else ()
    return key.strip("!"), wanted, "!" in key


def keeps(labels: Mapping[str, str], rule: str) -> bool:
    """Whether a node with these labels keeps the rule, see `LabelRule`."""
    key, values, is_not = parsed(rule)
    value = labels.get(key)
    return (value is not None and (not values or value in values)) is not is_not


def tolerates(tolerations: Collection[str], taints: Collection[str]) -> bool:
    """Whether none of a node's taints keeps away work that tolerates these."""
    return all(taint in tolerations for taint in taints)


def is_general(node: Node) -> bool:
    """Whether the node is for training, too."""
    return not is_in_zone(node)


def misfit(node: Node, spec: JobSpec) -> str | None:
    """Why new workers of this job do not go to the node, whatever room it has, as what follows on "the node"; None if
    they may.
    """
    return IN_ZONE if _leaves_to_services(node, spec) else must_not_run(node, spec)


def must_not_run(node: Node, spec: JobSpec) -> str | None:
    """The same but for the inference zone, which placement keeps free and the log does not."""
    wrong = _wrong_kind(node.spec, spec)
    if wrong is not None:
        return wrong
    if node.alone not in (None, spec.id):
        return "which another job holds alone"
    if spec.exclusive and (node.room or any(job != spec.id for job in node.jobs)):
        return "on which it would not be alone"
    return None


def wrong_kind(node: Node, spec: JobSpec) -> str | None:
    """The same for what the node is, whoever is there."""
    return IN_ZONE if _leaves_to_services(node, spec) else _wrong_kind(node.spec, spec)


def _leaves_to_services(node: Node, spec: JobSpec) -> bool:
    return spec.kind is JobKind.TRAINING and is_in_zone(node)


def _wrong_kind(node: NodeSpec, spec: JobSpec) -> str | None:
    for taint in node.taints:
        if taint not in spec.tolerations:
            return f"whose taint {taint} it does not tolerate"
    for rule in spec.node_labels:
        if not keeps(node.labels, rule):
            return f"whose labels do not keep {rule}"
    return None
