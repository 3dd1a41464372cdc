"""The parts of a Functions host that serve this app on a developer's machine.

The app is loaded and called through `azure_functions_runtime`, the library in which the cloud's Python worker keeps its
request handlers. This package plays what is around it in the cloud: the worker process (worker, protos) and the
Functions host that owns HTTP (http, routes, urls, cookies, server), timers (timers, ncrontab) and queues (queues,
storage, doorbell). `local.host` wires the parts and owns their life cycle.
"""
