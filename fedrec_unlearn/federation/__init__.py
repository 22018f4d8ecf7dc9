"""The round: clients train in blocks, their contributions add, the server moves."""
