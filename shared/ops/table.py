"""The one explicit table of the console's pages and actions. To add a page: a module with ROUTES, and a line here."""

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
from shared.ops.routes import Route

TABLE: tuple[Route, ...] = (
    *account.ROUTES,
    *overview.ROUTES,
    *conversations.ROUTES,
    *conversation_actions.ROUTES,
    *jobs.ROUTES,
    *jobs_actions.ROUTES,
    *job_types.ROUTES,
    *replays.ROUTES,
    *events.ROUTES,
    *endpoints.ROUTES,
    *webhook_sources.ROUTES,
    *delivery_figures.ROUTES,
    *documents.ROUTES,
    *documents_search.ROUTES,
    *people.ROUTES,
    *imports.ROUTES,
    *audit_log.ROUTES,
)
