"""The Databricks bundle: its shape, and that each of its tasks is a command as ours are called."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines import cli
from pipelines.cli import main

ROOT = Path(__file__).parents[1]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "databricks" / "databricks.yml").read_text())
JOBS: dict[str, Any] = BUNDLE["resources"]["jobs"]


def tasks() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in JOBS.items():
        yield from ((f"{name}.{task['task_key']}", task) for task in job["tasks"] if "python_wheel_task" in task)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize(("name", "task"), list(tasks()))
def test_a_task_calls_a_command_that_there_is(name: str, task: dict[str, Any]) -> None:
    """Options and all: click takes the arguments apart as it would on the cluster."""
    wheel = task["python_wheel_task"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert wheel["package_name"] == project["name"]
    assert wheel["entry_point"] in project["scripts"]
    given = ["a" if "{{" in part or "${" in part else part for part in wheel["parameters"]]
    context = cli.cli.make_context("lakejoin", list(given))
    command, _, rest = cli.cli.resolve_command(context, [*context._protected_args, *context.args])
    assert command == name.rpartition(".")[2]
    found = cli.cli.commands[command].make_context(command, list(rest), parent=context)
    assert str(found.params["path"]) == "a"


def test_every_name_that_is_used_is_defined() -> None:
    used = {name for text in texts(BUNDLE) for name in re.findall(r"\$\{var\.(\w+)\}", text)}
    assert used == set(BUNDLE["variables"])
    for job in JOBS.values():
        asked = {name for text in texts(job) for name in re.findall(r"\{\{job\.parameters\.(\w+)\}\}", text)}
        assert asked == {parameter["name"] for parameter in job.get("parameters", ())}
        clusters = {cluster["job_cluster_key"] for cluster in job["job_clusters"]}
        keys = [task["task_key"] for task in job["tasks"]]
        for place, task in enumerate(job["tasks"]):
            assert task.get("job_cluster_key", "lakejoin") in clusters
            assert all(one["task_key"] in keys[:place] for one in task.get("depends_on", ()))


def test_run_and_validate_have_a_schedule_and_a_backfill_wants_a_person() -> None:
    """It runs only if its name is given twice, and not by default; of no job do two runs go at once."""
    assert {name for name, job in JOBS.items() if "schedule" in job} == {"lakejoin_run", "lakejoin_validate"}
    assert all(job["max_concurrent_runs"] == 1 for job in JOBS.values())
    for name in ("schedule", "validation_schedule"):
        assert len(BUNDLE["variables"][name]["default"].split()) == 6, "a Quartz expression"
    backfill = JOBS["lakejoin_backfill"]
    defaults = {parameter["name"]: parameter["default"] for parameter in backfill["parameters"]}
    assert defaults["select"] != defaults["confirm"]
    guard, guarded = backfill["tasks"]
    assert guard["condition_task"]["op"] == "EQUAL_TO"
    assert guarded["depends_on"] == [{"task_key": guard["task_key"], "outcome": "true"}]


def test_a_job_hears_of_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task calls the function and looks at no value that it returns; one that ended well just returns."""
    monkeypatch.setattr("sys.argv", ["lakejoin", "check", "--file", str(ROOT / "conf" / "flights.yml")])
    cli.job()
    monkeypatch.setattr("sys.argv", ["lakejoin", "check", "--file", "gone.yml"])
    with pytest.raises(SystemExit) as stopped:
        cli.job()
    assert stopped.value.code == main(["check", "--file", "gone.yml"]) == 2
