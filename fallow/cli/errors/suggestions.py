"""What a word means that is no command of ours: one of ours mistyped, or that of another scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fallow.shared.near import near

LISTS = frozenset(("list", "ls", "get"))

ELSEWHERE = {
    **dict.fromkeys(("squeue", "sacct", "list", "ls", "ps", "status"), "jobs"),
    **dict.fromkeys(("queues", "line", "sprio"), "queue list"),
    **dict.fromkeys(("sbatch", "qsub", "create", "apply", "run"), "submit FILE"),
    **dict.fromkeys(("srun", "salloc"), "submit FILE --wait"),
    **dict.fromkeys(("scancel", "qdel", "delete", "kill", "stop"), "cancel ID"),
    **dict.fromkeys(("describe", "why", "logs"), "job ID"),
    "suspend": "job hold ID",
    "resume": "job release ID",
    "scale": "job scale ID WORKERS",
    "hold": "job hold ID",
    "release": "job release ID",
    "tenants": "tenant list",
    **dict.fromkeys(("sinfo", "top"), "nodes"),
    **dict.fromkeys(("sacctmgr", "quotas"), "quota show"),
    **dict.fromkeys(("sshare", "share", "shares"), "tenant shares"),
    **dict.fromkeys(("sreport", "sdiag"), "metrics"),
    **dict.fromkeys(("events", "history", "tail"), "log tail"),
    **{word: f"node {word} NODE" for word in ("cordon", "uncordon", "drain", "maintain", "lost", "remove")},
    **{word: f"snapshot {word} FILE" for word in ("export", "import")},
    "reload": "cell reload",
}
"""Words of Slurm, of Kubernetes, and of our own groups where the group was left out; with what does it here."""

SCONTROL = {
    **dict.fromkeys(("hold", "uhold", "suspend"), "job hold ID"),
    **dict.fromkeys(("release", "resume"), "job release ID"),
    "show": "job ID",
}
"""What `scontrol` does, by its next word."""

_AGAIN = "a job that is over stays over: submit it under a new id (docs/coming-from.md)"
_WAIT = "`fallow submit FILE --wait` follows what it submits, `fallow job ID` tells how a job stands"
_CHANGE = "a job is changed by `fallow job scale ID WORKERS`, `fallow job hold ID`, or `fallow cancel ID` and a new id"
_ALERTS = "what to watch, and what to do then, stands in docs/operations.md (When something is wrong)"

WAYS = {
    **dict.fromkeys(("retry", "requeue", "resubmit", "rerun", "restart"), _AGAIN),
    **dict.fromkeys(("wait", "watch", "follow", "attach", "strigger"), _WAIT),
    **dict.fromkeys(("update", "modify", "alter", "edit", "patch"), _CHANGE),
    **dict.fromkeys(("alert", "alerts", "health", "monitor", "prometheus"), _ALERTS),
}
"""Words for what no command of ours does, with what does it; behind `scontrol`, too."""

_NO_WORDS = "it takes no words: `fallow log why ID` tells who gave the order, and when"

OPTION_WAYS = {
    "job show": dict.fromkeys(("--follow", "-f", "--wait", "--watch"), _WAIT),
    **{command: dict.fromkeys(("--reason", "--comment", "-m"), _NO_WORDS) for command in ("job hold", "job release")},
}
"""What options that are often mistyped were meant to be, by the command."""

IN_GROUPS = {
    "job": {
        **dict.fromkeys(("ls", "get"), "job list"),
        **dict.fromkeys(("describe", "status", "info", "why", "explain", "story"), "job show ID"),
        **dict.fromkeys(("delete", "kill", "stop", "remove", "rm"), "job cancel ID"),
        **dict.fromkeys(("suspend", "pause"), "job hold ID"),
        **dict.fromkeys(("resume", "unhold", "unsuspend", "free"), "job release ID"),
        **dict.fromkeys(("resize", "replicas"), "job scale ID WORKERS"),
        **dict.fromkeys(("submit", "create", "apply", "run"), "submit FILE"),
    },
    "tenant": {
        **dict.fromkeys(("ls", "get", "show", "describe"), "tenant list"),
        **dict.fromkeys(("share", "usage", "fair-share"), "tenant shares"),
    },
    "queue": dict.fromkeys(("ls", "get", "show", "describe", "status"), "queue list"),
    "node": {
        **dict.fromkeys(("ls", "get"), "node list"),
        **dict.fromkeys(("describe", "status", "info"), "node show NODE"),
        **dict.fromkeys(("open", "reopen", "enable", "resume", "undrain", "online", "up"), "node uncordon NODE"),
        **dict.fromkeys(("close", "disable", "pause", "suspend", "offline"), "node cordon NODE"),
        **dict.fromkeys(("empty", "evict", "evacuate"), "node drain NODE"),
        **dict.fromkeys(("maintenance", "reserve"), "node maintain NODE"),
        "unmaintain": "node maintain NODE --cancel",
        "delete": "node remove NODE",
    },
    "quota": {**dict.fromkeys(LISTS, "quota show"), "delete": "quota remove TENANT", "update": "quota set TENANT"},
    "policy": dict.fromkeys(LISTS, "policy show"),
    "log": {**dict.fromkeys(LISTS, "log tail"), "explain": "log why JOB"},
    "cell": {**dict.fromkeys((*LISTS, "show"), "cell check"), "apply": "cell reload"},
    "topics": dict.fromkeys((*LISTS, "show"), "topics check"),
}
"""What is meant behind the name of a group."""

NEVER_GUESSED = frozenset(("lost", "remove"))
"""Commands whose effect no other command takes back. A word that is only like one of these may have meant another."""

KINDS = {
    **dict.fromkeys(("job", "jobs", "pod", "pods", "workload", "workloads"), "jobs"),
    **dict.fromkeys(("queue", "queues", "clusterqueue", "localqueue"), "queue list"),
    **dict.fromkeys(("node", "nodes"), "nodes"),
    **dict.fromkeys(("tenant", "tenants", "namespaces", "ns"), "tenant list"),
    **dict.fromkeys(("quota", "quotas", "resourcequota", "resourcequotas"), "quota show"),
    **dict.fromkeys(("events", "ev"), "log tail"),
}
"""What `get` of kubectl lists, by its next word."""

OPTIONS = {
    **dict.fromkeys(("--user", "--account", "--users", "--accounts"), "--tenant"),
    **dict.fromkeys(("--state", "--states"), "--status"),
    **dict.fromkeys(("--dependency",), "--after"),
    **dict.fromkeys(("--format", "--output"), "--json"),
    **dict.fromkeys(("--force", "--assume-yes"), "--yes"),
}
"""Options of others, with ours."""


STATUSES = {
    **dict.fromkeys(("pending", "pd", "waiting", "unschedulable"), "queued"),
    **dict.fromkeys(("completed", "complete", "succeeded", "done", "cd"), "finished"),
    **dict.fromkeys(("completing", "terminating", "cg"), "stopping"),
    **dict.fromkeys(("configuring", "creating", "containercreating", "cf"), "starting"),
    **dict.fromkeys(("suspended", "paused"), "held"),
    **dict.fromkeys(("timeout", "error", "oomkilled"), "failed"),
}
"""In which status a job of Slurm or of Kubernetes is, with ours."""


def value_meant(option: str, value: str, known: Collection[str]) -> str:
    """Which of the values that an option may have is meant by this one; "" where that is not known."""
    ours = STATUSES.get(value.lower(), "") if option == "--status" else ""
    return ours if ours in known else near(value, known) or ""


def words_too_many(command: str, words: str) -> str:
    """What the words too many behind a command may have been meant for; "" where that is not known."""
    first = words.partition(" ")[0]
    if command == "jobs":
        return f"one job is told by `fallow job {first}`, those of a tenant by --tenant"
    if command == "nodes":
        return f"one node is told by `fallow node show {first}`"
    if command == "submit":
        return "one file at a time; several go in one, a line `---` between them, or by `fallow submit -`"
    if command != "quota set":
        return ""
    if first.isdecimal():
        return "a number of GPUs is given by an option: --limit 8, --guaranteed 8"
    return f"a GPU type is given by an option: --gpu-type {first}"


def way_for(group: str, word: str, behind: str = "") -> str:
    """How that is done for which this word, first of all, is no command of ours; "" where it may be one."""
    return "" if group else WAYS.get(behind if word == "scontrol" else word, "")


def command_meant(group: str, word: str, known: Collection[str], behind: str = "") -> str:
    """The command that is meant by this word, as it is typed; "" where that is not known. `group` is where it
    stood, "" for the first word of all; `known` are the group's commands, and `behind` is the next word.
    """
    if not group:
        by_next = {"get": KINDS.get(behind, "jobs"), "scontrol": SCONTROL.get(behind, "job hold ID")}
        found = by_next.get(word) or ELSEWHERE.get(word)
    else:
        found = IN_GROUPS.get(group, {}).get(word)
    guessed = [name for name in known if name not in NEVER_GUESSED]
    if found is None and (alike := near(word, guessed)) is not None:
        found = f"{group} {alike}".strip()
    return f"fallow {found}" if found else ""


def option_meant(option: str, known: Collection[str]) -> str:
    """The option of a command that is meant by this one; "" where that is not known."""
    named: Mapping[str, str] = {each.lstrip("-"): each for each in known if each.startswith("--")}
    ours = OPTIONS.get(option)
    if ours in known:
        return str(ours)
    return named.get(near(option.lstrip("-"), named) or "", "")
