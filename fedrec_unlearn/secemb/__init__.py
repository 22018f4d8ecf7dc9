"""SecEmb: sparse item updates through two servers, of which neither learns which rows a client holds, nor a value.

Needs numpy and cryptography alone. `client.Client` and `server.Server` are the two sides of a round without any
input or output; `local.LocalPair` puts both servers into one process, `fedrec_unlearn.serving` on the network.
"""
