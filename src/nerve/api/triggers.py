"""The operations on triggers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.api.responses import run_response
from nerve.core.schedule import parse_instant

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.triggers.service import TriggerInfo, TriggerService


def open_triggers(session: Session) -> TriggerService:
    """Return the triggers of a session, as they are now."""
    from nerve.triggers import triggers_of

    service = triggers_of(session)
    service.refresh()
    return service


async def triggers(session: Session, request: models.EmptyRequest) -> models.TriggerPage:
    service = open_triggers(session)
    return models.TriggerPage(
        triggers=[trigger_response(service, name) for name in service.all()],
        problems=[problem.to_dict() for problem in service.problems],
    )


async def trigger(session: Session, request: models.TriggerRequest) -> models.TriggerResponse:
    return find_trigger_response(open_triggers(session), request.trigger)


async def define_trigger(session: Session, request: models.DefineTriggerRequest) -> models.TriggerResponse:
    service = open_triggers(session)
    await service.define(request.trigger, request.definition)
    return trigger_response(service, request.trigger)


async def remove_trigger(session: Session, request: models.ChangeTriggerRequest) -> models.DoneResponse:
    service = find_service(session, request.trigger)
    await service.remove(request.trigger)
    return models.DoneResponse()


async def pause_trigger(session: Session, request: models.ChangeTriggerRequest) -> models.TriggerResponse:
    service = find_service(session, request.trigger)
    await service.pause(request.trigger, request.caller.identity)
    return trigger_response(service, request.trigger)


async def resume_trigger(session: Session, request: models.ChangeTriggerRequest) -> models.TriggerResponse:
    service = find_service(session, request.trigger)
    await service.resume(request.trigger)
    return trigger_response(service, request.trigger)


async def fire_trigger(session: Session, request: models.FireTriggerRequest) -> models.FiredResponse:
    """Start a run of a trigger now, once for a key or a delivery."""
    from nerve.triggers.start_arguments import NotStarted, NotWanted

    service = find_service(session, request.trigger)
    via = request.caller.via
    try:
        run = await service.fire(request.trigger, request.event, request.key, request.delivery, via=via)
    except NotWanted as error:
        return models.FiredResponse(reason=str(error))
    except NotStarted as error:
        service.refuse(request.trigger, str(error))
        raise ApiError("refused", f"Trigger '{request.trigger}' starts nothing: {error}") from None
    return models.FiredResponse(run=run_response(run))


async def backfill_trigger(
    session: Session, request: models.BackfillTriggerRequest
) -> models.BackfillResponse:
    service = find_service(session, request.trigger)
    since, until = (parse_instant(at, "UTC") for at in (request.since, request.until))
    runs = await service.backfill(request.trigger, since, until)
    return models.BackfillResponse(runs=[run_response(run) for run in runs])


def find_service(session: Session, name: str) -> TriggerService:
    """Return the triggers of a session, one of which has the name."""
    from nerve.triggers.service import UnknownTrigger

    service = open_triggers(session)
    try:
        service.find(name)
    except UnknownTrigger as error:
        raise ApiError("not_found", str(error), "See the list: nerve triggers") from None
    return service


def find_trigger_response(service: TriggerService, name: str) -> models.TriggerResponse:
    find_service(service.session, name)
    return trigger_response(service, name)


def trigger_response(service: TriggerService, name: str) -> models.TriggerResponse:
    info: TriggerInfo = service.describe(name)
    found, state = info.trigger, info.state
    prefix = found.start_key("")
    return models.TriggerResponse(
        name=name,
        kind=found.kind,
        workflow=found.workflow,
        source=found.source,
        definition=dict(found.data),
        enabled=found.enabled,
        paused=state.is_paused,
        paused_by=state.paused_by or None,
        next_times=[to_time(at) for at in info.next_times],
        queued=len(state.queued),
        last_runs=[
            models.TriggeredRunResponse(
                run_id=row.run,
                state=row.state,
                started_at=to_time(row.started),
                occurrence=(row.key or "").removeprefix(prefix),
            )
            for row in info.last_runs
        ],
        skipped=[
            models.SkippedResponse(occurrence=skip.occurrence, at=to_time(skip.at), reason=skip.reason)
            for skip in reversed(state.skips)
        ],
        refused=[
            models.SkippedResponse(at=to_time(at), reason=reason)
            for at, reason in reversed(service.refusals.get(name, ()))
        ],
    )


def to_time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
