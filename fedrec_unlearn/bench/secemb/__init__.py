"""A study of transports: what SecEmb costs, byte by byte and millisecond by millisecond, and what its rivals lose."""
