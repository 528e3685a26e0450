"""The service: HTTP in front of the live catalog, and a Python client for it.

Its packages belong to the extra `serve`; where they are missing, importing this room says how to install them.
"""

from metaxc.extras import needed

for _module in ("fastapi", "uvicorn", "prometheus_client", "httpx"):
    needed(_module, "serve")
