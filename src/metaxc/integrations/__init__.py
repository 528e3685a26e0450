"""Retrievers for LangChain, LlamaIndex and Haystack: each searches a running service (`metaxc.serve`) over HTTP.

Each module needs the package of its framework, which an extra of the same name installs: `langchain`, `llama-index`,
`haystack`; beside it the extra `serve`, for the client.
"""
