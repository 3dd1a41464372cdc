"""What the stand-ins for `az` and `azd` answer: by a state that they keep. Standard library alone; it runs as a program too."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Failure(Exception):
    """The program ends with status 1 and says so."""


def words_of(arguments: Sequence[str]) -> str:
    """The command without its options."""
    first = next((place for place, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return " ".join(arguments[:first])


def answer(state: dict[str, Any], program: str, arguments: Sequence[str]) -> str:
    """Do what was asked, in `state`, and give what is printed. Raises Failure."""
    called = f"{program} {words_of(arguments)}"
    options = {name: arguments[place + 1] for place, name in enumerate(arguments[:-1]) if name.startswith("--")}
    _fail_if_told(state, called)
    if program == "azd":
        return _azd(state, called, arguments)
    found = _az(state, called, options, arguments)
    if options.get("--output") != "json" or found is None:
        return ""
    query = options.get("--query")
    for key in query.split(".") if query and isinstance(found, dict) else []:
        found = found.get(key)
    return json.dumps(found)


def _fail_if_told(state: dict[str, Any], called: str) -> None:
    for begins, failure in list(state["failures"].items()):
        if called.startswith(begins):
            if failure["times"] is not None:
                failure["times"] -= 1
                if failure["times"] <= 0:
                    del state["failures"][begins]
            raise Failure(failure["says"])


def _azd(state: dict[str, Any], called: str, arguments: Sequence[str]) -> str:
    if called.startswith("azd env set"):
        state["azd"][arguments[2]] = arguments[3]
        return ""
    if called.startswith("azd env get-values"):
        return json.dumps(state["azd"])
    return str(_listed(state, called) or "")


def _az(state: dict[str, Any], called: str, options: dict[str, str], arguments: Sequence[str]) -> Any:
    if called.startswith("az keyvault secret"):
        return _secret(state, called.split()[-1], options)
    if called.startswith("az ad app"):
        return _app(state, called.split()[-1], options, arguments)
    return _listed(state, called)


def _secret(state: dict[str, Any], verb: str, options: dict[str, str]) -> Any:
    name, secrets = options["--name"], state["secrets"]
    if verb == "show":
        if name not in secrets:
            raise Failure(f"(SecretNotFound) A secret with (name/id) {name} was not found in this key vault.")
        return {"id": f"https://vault/secrets/{name}", "value": secrets[name]}
    if verb == "set":
        if name in state["deleted_secrets"]:
            raise Failure("(Conflict) It is in a deleted but recoverable state (ObjectIsDeletedButRecoverable)")
        secrets[name] = Path(options["--file"]).read_text()
        return {"value": secrets[name]}
    secrets[name] = state["deleted_secrets"].pop(name)
    return None


def _app(state: dict[str, Any], verb: str, options: dict[str, str], arguments: Sequence[str]) -> Any:
    apps = state["apps"]
    if verb == "list":
        return apps
    if verb == "create":
        roles = json.loads(options["--app-roles"])
        app = {
            "appId": "app-1",
            "displayName": options["--display-name"],
            "appRoles": roles,
            "web": {"redirectUris": []},
        }
        apps.append(app)
        return app
    app = next(app for app in apps if app["appId"] == options["--id"])
    if verb == "update":
        app["web"]["redirectUris"] = [word for word in arguments if word.startswith("http")]
    return app


def _listed(state: dict[str, Any], called: str) -> Any:
    return next((answer for begins, answer in state["answers"].items() if called.startswith(begins)), None)


def main(folder: Path, program: str, arguments: Sequence[str]) -> int:
    """Be the program."""
    with (folder / "calls.jsonl").open("a") as log:
        log.write(json.dumps([program, *arguments]) + "\n")
    state = json.loads((folder / "state.json").read_text())
    try:
        printed = answer(state, program, arguments)
    except Failure as failure:
        sys.stderr.write(f"WARNING: something beside the point\nERROR: {failure}\n")
        return 1
    finally:
        (folder / "state.json").write_text(json.dumps(state))
    sys.stdout.write(printed)
    return 0
