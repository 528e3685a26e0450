"""The service: HTTP in front of the live catalog, and a Python client for it.

Its packages belong to the extra `serve`; where they are missing, importing this room says how to install them.
"""

from metaxc.extras import import_extra

for _module in ("fastapi", "uvicorn", "prometheus_client", "httpx"):
    import_extra(_module, "serve")
