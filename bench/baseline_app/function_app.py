"""The baseline of `acknowledge`: an application that inserts one row for each request, and does nothing else."""

from __future__ import annotations

import os

import azure.functions as func

from shared.app import open_database
from shared.settings import load

INSERT = "INSERT INTO bare (body) VALUES (%(body)s)"

database = open_database(load(os.environ))
app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="bare", methods=["POST"])
def bare(req: func.HttpRequest) -> func.HttpResponse:
    """One row."""
    with database.connection() as connection:
        connection.execute(INSERT, {"body": req.get_body().decode()})
    return func.HttpResponse("", status_code=200, headers={"Content-Type": "text/xml; charset=utf-8"})
