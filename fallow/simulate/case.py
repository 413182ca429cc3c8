"""`fallow case`: conformance cases on the production services, in virtual time."""

from pathlib import Path
from random import Random
from time import perf_counter
from typing import Annotated

import typer

from fallow.cli.arguments.paths import file_to_read
from fallow.cli.errors.failures import Exit
from fallow.cli.output.output import AsJson, print_json, print_line
from fallow.replay.workload import WorkloadError
from fallow.shared.runtime.files.text_file import TextFileError, read_text_file
from fallow.shared.runtime.files.yaml_text import YamlTextError, read_yaml
from fallow.simulator.cases.run import CaseRun, Verdict
from fallow.simulator.cases.schema import Case, CaseError, case_of

app = typer.Typer()


@app.command()
def case(
    files: Annotated[
        list[Path], typer.Argument(callback=file_to_read, help="Cases, one in each file.", show_default=False)
    ],
    permute: Annotated[
        int | None, typer.Option(help="Rename and shuffle everything, drawn from this seed. The verdict stays.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run conformance cases, and tell for each whether it passes, and else what is different.

    A case brings a cluster, queues and jobs, lets things happen, and says what must come of it. An unknown key is an
    error that names it; a known one that this version does not go by is named beside the verdict.
    """
    cases = [read_case(path) for path in files]
    chances = [None if permute is None else Random(permute) for _ in cases]  # noqa: S311 - seeded, for the same again
    verdicts = [CaseRun(each, chance, perf_counter).run() for each, chance in zip(cases, chances, strict=True)]
    failed = [verdict for verdict in verdicts if not verdict.passed]
    if as_json:
        names = [verdict.name for verdict in failed]
        passed, remarks = len(verdicts) - len(failed), {each.name: each.remarks for each in verdicts if each.remarks}
        print_json({"passed": passed, "failed": len(failed), "failed_names": names, "remarks": remarks})
    else:
        for verdict in verdicts:
            show(verdict)
        print_line(f"{len(verdicts) - len(failed)} passed, {len(failed)} failed")
    raise typer.Exit(Exit.NO if failed else Exit.OK)


def read_case(path: Path) -> Case:
    """The case in a file. Raises WorkloadError with the file, the key and the rule."""
    try:
        content = read_yaml(read_text_file(path, may_be_pipe=True))
        return case_of(content, path.name)
    except CaseError as error:
        raise WorkloadError(str(error)) from error
    except (TextFileError, YamlTextError) as error:
        raise WorkloadError(f"{path}: {error}") from error


def show(verdict: Verdict) -> None:
    """For people."""
    print_line(f"{'pass' if verdict.passed else 'FAIL'}  {verdict.name}")
    for text in verdict.differences:
        print_line(f"      {text}")
    for remark in verdict.remarks:
        print_line(f"      ({remark})")
