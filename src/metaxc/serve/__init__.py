"""The HTTP service in front of the live catalog, its web page, and a Python client.

Importing this package without the packages of the extra `serve` raises an error that says how to install them.
"""

from metaxc.extras import import_extra

for _module in ("fastapi", "uvicorn", "prometheus_client", "httpx"):
    import_extra(_module, "serve")
