"""A small Functions app that shows what the local host does with it; GET /api/seen tells what has run."""

import json
import logging
import os
import sys
import threading
import time

import azure.functions as func
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

seen: dict[str, list] = {"queue": [], "timer": [], "stopping": []}
lock = threading.Lock()
told_to_stop = threading.Event()


def stopping() -> None:
    """The host says that it stops."""
    told_to_stop.set()
    if path := os.environ.get("STOPPING_FILE"):
        with open(path, "a") as file:
            file.write("told\n")


# --- HTTP ---------------------------------------------------------------------
@app.route(route="hook/{source:alpha?}", methods=["POST"])
def hook(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    said = {
        "url": req.url,
        "body_hex": req.get_body().hex(),
        "headers": dict(req.headers),
        "params": dict(req.params),
        "route_params": dict(req.route_params),
        "form": dict(req.form) if "form" in req.headers.get("content-type", "") else None,
        "function": context.function_name,
        "trace_parent": context.trace_context.trace_parent,
        "ids_match": context.invocation_id == context.thread_local_storage.invocation_id,
        "cwd": os.getcwd(),
    }
    return func.HttpResponse(json.dumps(said), mimetype="application/json")


@app.route(route="boom", methods=["GET"])
def boom(req: func.HttpRequest) -> func.HttpResponse:
    raise RuntimeError("boom with\na secret")


@app.route(route="nothing", methods=["GET"])
def nothing(req: func.HttpRequest) -> func.HttpResponse:
    return None  # a mistake: it cannot be encoded


@app.route(route="text", methods=["GET"])
def text(req: func.HttpRequest) -> str:
    return "just text"


@app.route(route="leave", methods=["GET"])
def leave(req: func.HttpRequest) -> func.HttpResponse:
    sys.exit(3)


@app.route(route="empty", methods=["GET"])
def empty(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse("not sent", status_code=204)


@app.route(route="ping", methods=["GET"])
def ping(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse("pong")


@app.route(route="thread", methods=["GET"])
def thread(req: func.HttpRequest) -> func.HttpResponse:
    time.sleep(0.5)
    return func.HttpResponse(threading.current_thread().name)


@app.route(route="wait", methods=["POST"])
def wait(req: func.HttpRequest) -> func.HttpResponse:
    """Works for `s` seconds; with `listen` it ends early when the host stops."""
    logging.info("waiting")
    seconds = float(req.params["s"])
    if "listen" in req.params:
        return func.HttpResponse("told" if told_to_stop.wait(seconds) else "not told")
    time.sleep(seconds)
    return func.HttpResponse("done")


@app.route(route="block", methods=["POST"])
async def block(req: func.HttpRequest) -> func.HttpResponse:
    logging.info("blocking")
    time.sleep(20)  # a mistake: it holds up the event loop
    return func.HttpResponse("blocked")


@app.route(route="logs", methods=["POST"])
def logs(req: func.HttpRequest) -> func.HttpResponse:
    logging.getLogger("antwoord.jobs").info('{"event": "job.done"}')
    logging.getLogger("antwoordx").info("not the app's")
    logging.getLogger("azure.core").info("too much")
    logging.debug("a debug line")
    return func.HttpResponse("logged")


@app.route(route="cookies", methods=["GET"])
def cookies(req: func.HttpRequest) -> func.HttpResponse:
    response = func.HttpResponse("ok")
    response.headers.add("Set-Cookie", "a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT; HttpOnly")
    response.headers.add("Set-Cookie", "b=x/y==; Path=/p; SameSite=None; Secure")
    return response


@app.route(route="setting", methods=["GET"])
def setting(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(json.dumps(os.environ.get(req.params["name"])))


@app.route(route="seen", methods=["GET"])
def get_seen(req: func.HttpRequest) -> func.HttpResponse:
    with lock:
        return func.HttpResponse(json.dumps(seen), mimetype="application/json")


# --- an ASGI app below ops/ ------------------------------------------------------
async def echo(request: Request) -> Response:
    return JSONResponse({
        "method": request.method, "path": request.url.path, "query": request.url.query, "cookies": request.cookies,
        "headers": sorted(request.headers.items()), "body_hex": (await request.body()).hex(),
    })  # fmt: skip


async def reverse(request: Request) -> Response:
    return Response((await request.body())[::-1], media_type="application/octet-stream")


def bake(request: Request) -> Response:
    response = Response("baked", 201)
    response.set_cookie("a", "1", max_age=60, httponly=True, samesite="lax")
    response.set_cookie("b", "two", path="/api/ops", secure=True, samesite="strict")
    return response


asgi = func.AsgiMiddleware(
    Starlette(
        routes=[
            Route("/api/ops/echo", echo, methods=["GET", "POST", "PUT", "DELETE"]),
            Route("/api/ops/reverse", reverse, methods=["POST"]),
            Route("/api/ops/cookies", bake),
        ]
    )
)


@app.route(route="ops/{*path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE"])
async def ops(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    return await asgi.handle_async(req, context)


# --- timer and queue ---------------------------------------------------------------
@app.timer_trigger(arg_name="timer", schedule="%TICK%")
def tick(timer: func.TimerRequest) -> None:
    started = time.time()
    with lock:
        first = not seen["timer"]
        seen["timer"].append([started, None])
        index = len(seen["timer"]) - 1
    if first:
        time.sleep(2.4)  # longer than two periods
    seen["timer"][index][1] = time.time()


@app.queue_trigger(arg_name="msg", queue_name="wake", connection="AzureWebJobsStorage")
def woken(msg: func.QueueMessage) -> None:
    body = msg.get_body().decode()
    with lock:
        seen["queue"].append({"body": body, "count": msg.dequeue_count, "at": time.time(), "id": msg.id})
    if body == "poison" or (body == "once" and msg.dequeue_count == 1):
        raise ValueError("bad message")
    if body == "slow":
        time.sleep(20)
    if body == "listen":
        told_to_stop.wait(20)
