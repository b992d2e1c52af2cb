"""Record in the ledger that a run was refused, and why: its readers see more than the runs that went well."""

import logging
import uuid
from dataclasses import replace

from lakehouse.errors.errors import LakejoinError
from lakehouse.ledger.entries import REFUSED, Entry
from lakehouse.publish.writes import RESULT_PART, Append
from pipelines.binding.workspace import Workspace

log = logging.getLogger(__name__)


def record_refusal(workspace: Workspace, name: str, error: LakejoinError) -> None:
    """
    Append a *refused* row for a join, or a changelog source, that cannot continue without a person.

    Nothing is written before its first epoch, while an epoch is broken, which has a row of its own, and if the newest
    row says the same already. A ledger that cannot be written does not hide the error.
    """
    try:
        ledger = workspace.ledger
        history = ledger.of(name)
        last, reason = history.committed, f"{error.code}: {error.where}: {error.problem}"
        if last is None or history.broken is not None:
            return
        newest = history.recent[-1]
        if newest.step == REFUSED and newest.reason == reason:
            return
        result = replace(last.result, base_version=last.result.newest, version=None)
        ledger.append(
            Entry(
                join=name,
                epoch=history.next_epoch,
                step=REFUSED,
                run_id=uuid.uuid4().hex,
                strategy="",
                reason=reason,
                definition=last.definition,
                sources=(),
                writes=(Append(result, RESULT_PART),),
                message=error.message,
            )
        )
    except Exception:  # the ledger may be what is damaged: the error of the join is told whatever happens here
        log.warning("%s: the refusal was not recorded in the ledger", name, exc_info=True)
