"""SecEmb's two servers over HTTPS with mutual TLS, and the client side that talks to both.

`run.serve` is one server as a process (``fedrec serve``), `run.start` one in a thread; `remote.RemotePair` speaks to
two of them and fits where `secemb.local.LocalPair` fits; `certificates.make_certificates` makes what a trial needs.
Needs the extra ``serve`` (starlette, uvicorn, httpx), which importing this package does not load.
"""
