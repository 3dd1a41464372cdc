"""The one explicit table of the console's pages and actions, and of who may act.

To add a page: a module with ROUTES, and a line here. Whoever is let in may look at all of it; an action is an administrator's
alone, where its line does not say otherwise.
"""

from __future__ import annotations

from shared.ops import (
    account,
    audit_log,
    conversation_actions,
    conversations,
    delivery_figures,
    documents,
    documents_search,
    endpoints,
    events,
    imports,
    job_types,
    jobs,
    jobs_actions,
    overview,
    people,
    replays,
    webhook_sources,
)
from shared.ops.roles import Role
from shared.ops.routes import Route, done_by

VIEWER, OPERATOR = Role.VIEWER, Role.OPERATOR

TABLE: tuple[Route, ...] = (
    *done_by(VIEWER, account.ROUTES),
    *done_by(VIEWER, overview.ROUTES),
    *done_by(OPERATOR, conversations.ROUTES),
    *done_by(OPERATOR, conversation_actions.ROUTES),
    *done_by(OPERATOR, jobs.ROUTES),
    *done_by(OPERATOR, jobs_actions.ROUTES),
    *done_by(OPERATOR, job_types.ROUTES),
    *done_by(OPERATOR, replays.ROUTES),
    *done_by(OPERATOR, events.ROUTES),
    *endpoints.ROUTES,
    *webhook_sources.ROUTES,
    *done_by(VIEWER, delivery_figures.ROUTES),
    *documents.ROUTES,
    *done_by(VIEWER, documents_search.ROUTES),
    *people.ROUTES,
    *imports.ROUTES,
    *done_by(VIEWER, audit_log.ROUTES),
)
